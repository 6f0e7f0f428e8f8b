import { useQueryClient } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { api, type Tool } from "../../api/client";
import { announce, Button, Check, Choice, Decide, Dialog, Failure, Line, Loading, useRead } from "../../parts";
import { t, translated } from "../../text";
import { toolPath } from "../tools/paths";
import { createBundle, type DraftTool, put, trustSaved } from "./drafts";
import { Touches, trusted } from "./trust";

const Diff = lazy(() => import("../../parts/Diff"));

type Props = {
  /** The tool of the text as it is now, null while it has errors. */
  tool: DraftTool | null;
  text: string;
  base?: Tool;
  /** The text that it is compared with. */
  before: string | null;
  done: () => void;
};

/** The button that saves a draft, and the window in which one looks once more. */
export function Save(props: Props) {
  const [open, setOpen] = useState(false);
  const { tool } = props;
  return (
    <>
      <Button look="primary" className="save" disabled={tool === null} onClick={() => setOpen(true)}>{t("build.save")}</Button>
      {open && tool !== null && <Confirm {...props} tool={tool} close={() => setOpen(false)} />}
    </>
  );
}

function Confirm({ tool, text, base, before, done, close }: Props & { tool: DraftTool; close: () => void }) {
  const own = base?.source === "user" ? base.bundleID : undefined;
  const bundles = useRead(
    ["bundles"],
    () => api.GET("/tools/bundles", { params: { query: { includeDisabled: true } } }),
    { select: ({ bundles: found }) => found.filter(({ source, isEnabled }) => source === "user" && isEnabled !== false) },
  );
  const [chosen, setChosen] = useState<string | null>(own ?? null);
  const [name, setName] = useState(t("build.bundle.mine"));
  const [state, setState] = useState<{ busy: boolean; failure: unknown }>({ busy: false, failure: null });
  const [trust, setTrust] = useState(trusted.has(tool.digest ?? ""));
  const navigate = useNavigate();
  const queries = useQueryClient();
  const bundle = chosen ?? bundles.data?.[0]?.id ?? "";
  const names = new Map(bundles.data?.map((one) => [one.id, translated(one).title]));

  const save = async () => {
    setState({ busy: true, failure: null });
    try {
      const id = bundle === "" ? await createBundle(name) : bundle;
      const made = await put(id, tool, text);
      done();
      announce(t("build.saved", { name: made.name }));
      if (trust) await trustSaved(made, tool).catch(({ message }: Error) => announce(message));
      void queries.invalidateQueries();
      await navigate({ to: toolPath(made) });
    } catch (failure) {
      setState({ busy: false, failure });
    }
  };
  return (
    <Dialog title={t("build.save.title", { slug: tool.slug, version: tool.version })} close={close}>
      {before !== null && (
        <Suspense fallback={<Loading />}>
          <Diff before={before} after={text} />
        </Suspense>
      )}
      <div>
        <h3>{t("tool.touches")}</h3>
        <Touches tool={tool} />
        {tool.digest !== null && <Check on={trust} change={setTrust}>{t("build.save.trust")}</Check>}
      </div>
      {own === undefined && (
        <div className="fields">
          <Choice label={t("tools.filter.bundleIDs")} value={bundle} change={setChosen} of={[...names.keys(), ""]} text={(one) => names.get(one) ?? t("build.bundle.new")} />
          {bundle === "" && <Line label={t("build.bundle.name")} value={name} change={setName} />}
        </div>
      )}
      {state.failure !== null && <Failure error={state.failure} />}
      <Decide label={t("build.save")} busy={state.busy} act={() => void save()} close={close} />
    </Dialog>
  );
}
