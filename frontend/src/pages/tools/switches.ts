/** Turning tools and bundles on and off: shown at once, and taken back with the reason if it is refused. */

import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, type Bundle, data, type ToolItem } from "../../api/client";
import { announce } from "../../parts/notices";
import { t } from "../../text";

type Change = { on: boolean } & ({ tool: ToolItem; bundle?: never } | { bundle: Bundle; tool?: never });

/** Return what turns a tool or a bundle on or off. */
export function useSwitch(): (change: Change) => void {
  const client = useQueryClient();
  const { mutate } = useMutation({
    mutationFn: async ({ tool, bundle, on }: Change) => {
      const body = { isEnabled: on };
      if (bundle !== undefined) {
        const path = { bundleID: bundle.id };
        await data(api.PATCH("/tools/bundles/{bundleID}", { params: { path }, body }));
        return;
      }
      const path = { bundleID: tool.bundleID, toolSlug: tool.slug, v: tool.version };
      await data(
        api.PATCH("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}", { params: { path }, body }),
      );
    },
    onMutate: async ({ tool, bundle, on }) => {
      await client.cancelQueries();
      // Every list that shows it has the record somewhere: changed wherever it is.
      const id = tool === undefined ? bundle.id : tool.toolID;
      const before = client.getQueriesData({});
      client.setQueriesData({}, (found: unknown) => switched(found, id, on));
      return { before };
    },
    onError: (error, change, context) => {
      for (const [key, found] of context?.before ?? []) client.setQueryData(key, found);
      announce(t("tools.switch.refused", { name: nameOf(change), reason: error.message }));
    },
    // Most lists leave out what is off.
    onSuccess: (_, change) => {
      if (!change.on) announce(t("tools.switched.off", { name: nameOf(change) }), () => mutate({ ...change, on: true }));
    },
    onSettled: () => client.invalidateQueries(),
  });
  return mutate;
}

function nameOf({ tool, bundle }: Change): string {
  return tool === undefined ? bundle.displayName || bundle.slug : tool.name;
}

function switched(found: unknown, id: string, on: boolean): unknown {
  if (Array.isArray(found)) return found.map((one) => switched(one, id, on));
  if (typeof found !== "object" || found === null) return found;
  const record = found as Record<string, unknown>;
  if (record.toolID === id || (record.id === id && "isEnabled" in record)) return { ...record, isEnabled: on };
  if (!("pages" in record || "tools" in record || "bundles" in record)) return found;
  return Object.fromEntries(
    Object.entries(record).map(([key, value]) => [key, Array.isArray(value) ? switched(value, id, on) : value]),
  );
}
