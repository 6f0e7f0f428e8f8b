import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, type Bundle, data, type ToolItem } from "../../api/client";
import { announce, Switch } from "../../parts";
import { t, translated } from "../../text";
import { pathOf } from "./paths";

type Props = { tool: ToolItem; bundle?: never } | { bundle: Bundle; tool?: never };

/** Turns a tool or a bundle on and off: shown at once, and taken back with the reason if it is refused. */
export function Toggle({ tool, bundle }: Props) {
  const client = useQueryClient();
  const name = tool === undefined ? translated(bundle).title : tool.name;
  const { mutate, variables, isPending } = useMutation({
    mutationFn: async (isEnabled: boolean) => {
      const body = { isEnabled };
      await (tool === undefined
        ? data(api.PATCH("/tools/bundles/{bundleID}", { params: { path: { bundleID: bundle.id } }, body }))
        : data(api.PATCH("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}", { params: { path: pathOf(tool) }, body })));
    },
    // Most lists leave out what is off.
    onSuccess: (_, isEnabled) => isEnabled || announce(t("tools.switched.off", { name }), () => mutate(true)),
    onError: ({ message }) => announce(t("tools.switch.refused", { name, reason: message })),
    onSettled: () => client.invalidateQueries(),
  });
  const on = isPending ? variables : (tool ?? bundle).isEnabled !== false;
  return <Switch label={t(tool === undefined ? "tools.bundle.enabled" : "tools.enabled", { name })} on={on} onChange={mutate} />;
}
