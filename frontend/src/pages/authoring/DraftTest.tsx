import { useRef, useState } from "react";
import { send } from "../../api/client";
import { Decide, Dialog } from "../../parts/Dialog";
import { plain } from "../../parts/json";
import { t } from "../../text";
import type { Send } from "../tools/call";
import { Tester } from "../tools/Tester";
import type { DraftTool } from "./drafts";

/** The tester of a draft: it runs once this person has seen what it may touch. */
export function DraftTest({ tool, text }: { tool: DraftTool | null; text: string }) {
  const [asked, setAsked] = useState<((answer: boolean) => void) | null>(null);
  const [last, setLast] = useState(tool);
  const trusted = useRef("");
  // While one types, the form of the last good text stays.
  if (tool !== null && tool !== last) setLast(tool);
  const shown = tool ?? last;
  if (shown === null) return <p className="card muted">{t("build.test.none")}</p>;

  const call: Send = async (args, dryRun) => {
    const trust = shown.digest ?? "";
    if (!dryRun && trusted.current !== trust) {
      if (!(await new Promise<boolean>((resolve) => setAsked(() => resolve)))) return null;
      trusted.current = trust;
    }
    const more = dryRun ? `"dryRun": true` : `"trust": ${JSON.stringify(trust)}`;
    return send("/tools/draft/invoke", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: `{"text": ${JSON.stringify(text)}, "args": ${args}, ${more}}`,
    });
  };
  const answer = (yes: boolean) => {
    asked?.(yes);
    setAsked(null);
  };
  return (
    <>
      <section className="card" aria-labelledby="touches">
        <h2 id="touches">{t("tool.touches")}</h2>
        <Touches tool={shown} />
      </section>
      <Tester schema={shown.argSchema} start={JSON.stringify(shown.examples[0]?.params ?? {}, null, 2)} call={call} />
      {asked !== null && (
        <Dialog title={t("build.trust")} close={() => answer(false)}>
          <p>{t("build.trust.about")}</p>
          <Touches tool={shown} />
          <Decide label={t("build.trust.yes")} act={() => answer(true)} close={() => answer(false)} />
        </Dialog>
      )}
    </>
  );
}

export function Touches({ tool }: { tool: DraftTool }) {
  if (tool.unavailableBecause !== null) return <p className="wrong">{t("tool.unavailable", { reason: plain(tool.unavailableBecause) })}</p>;
  return (
    <ul className="bullets">
      {tool.touches.map((one) => (
        <li key={one}>{plain(one)}</li>
      ))}
    </ul>
  );
}
