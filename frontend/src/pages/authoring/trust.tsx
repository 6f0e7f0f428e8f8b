import { type ReactNode, useRef, useState } from "react";
import { send } from "../../api/client";
import { Bullets, Check, Decide, Dialog, plain } from "../../parts";
import { said, t } from "../../text";
import type { DraftTool } from "./drafts";

type Question = { tool: DraftTool; watch: boolean; answer: (yes: boolean) => void };
type Call = (args: string, how: "run" | "dry" | "watch") => Promise<Response | null>;

/** Digests of the drafts that this person has trusted here. */
export const trusted = new Set<string>();

/** Return what calls a draft, or a stored tool as one, and the question to be shown: may it touch all this? */
export function useTrusted(draft: { text: string } | { tool: string }, look: () => Promise<DraftTool>, { canWatch, isTrusted }: { canWatch?: boolean; isTrusted?: boolean }): [Call, ReactNode] {
  const [asked, setAsked] = useState<Question | null>(null);
  const watching = useRef(false);

  const call: Call = async (args, how) => {
    let more = `"dryRun": true`;
    if (how !== "dry") {
      const tool = await look();
      const trust = tool.digest ?? "";
      watching.current = how === "watch";
      if (!trusted.has(trust)) {
        const yes = await new Promise<boolean>((resolve) => setAsked({ tool, watch: watching.current, answer: resolve }));
        setAsked(null);
        if (!yes) return null;
        trusted.add(trust);
      }
      more = `"trust": ${JSON.stringify(trust)}, "watch": ${watching.current}`;
    }
    return send("/tools/draft/invoke", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: `{${JSON.stringify(draft).slice(1, -1)}, "args": ${args}, ${more}}`,
    });
  };
  const question = asked !== null && (
    <Dialog title={t("tool" in draft ? "watch.trust" : "build.trust")} close={() => asked.answer(false)}>
      <p>{t("tool" in draft ? "watch.trust.about" : "build.trust.about")}</p>
      <Touches tool={asked.tool} />
      {canWatch && (
        <Check
          on={asked.watch}
          change={(watch) => {
            watching.current = watch;
            setAsked({ ...asked, watch });
          }}
        >
          {t("watch.run")}
        </Check>
      )}
      <Decide label={t(isTrusted ? "watch.yes" : "build.trust.yes")} act={() => asked.answer(true)} close={() => asked.answer(false)} />
    </Dialog>
  );
  return [call, question];
}

export function Touches({ tool }: { tool: DraftTool }) {
  if (tool.unavailableBecause !== null) return <p className="wrong">{t("tool.unavailable", { reason: plain(said(tool.unavailableBecause)) })}</p>;
  return <Bullets of={tool.touches} />;
}
