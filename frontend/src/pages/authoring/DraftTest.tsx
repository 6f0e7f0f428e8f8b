import { useState } from "react";
import { api, data } from "../../api/client";
import type { Grant } from "../../parts";
import { t } from "../../text";
import { firstArguments } from "../tools/call";
import { Tester } from "../tools/Tester";
import type { DraftTool } from "./drafts";
import { Touches, useTrusted } from "./trust";

type Props = {
  tool: DraftTool | null;
  text: string;
  /** Puts permissions into the draft; none where its questions have no place for them. */
  take?: (grants: Grant[]) => void;
};

/** The tester of a draft: it runs once this person has seen what it may touch. */
export function DraftTest({ tool, text, take }: Props) {
  const [last, setLast] = useState(tool);
  // While one types, the form of the last good text stays.
  if (tool !== null && tool !== last) setLast(tool);
  const shown = tool ?? last;
  if (shown === null) return <p className="card muted">{t("build.test.none")}</p>;
  return <Shown tool={shown} text={text} take={take} />;
}

function Shown({ tool, text, take }: Props & { tool: DraftTool }) {
  // What was shown last may be of the text before this one.
  const look = async () => (await data(api.POST("/tools/draft", { body: { text } }))).tool ?? tool;
  const [call, question] = useTrusted({ text }, look, { canWatch: take !== undefined });
  return (
    <>
      <section className="card" aria-labelledby="touches">
        <h2 id="touches">{t("tool.touches")}</h2>
        <Touches tool={tool} />
      </section>
      <Tester
        schema={tool.argSchema}
        start={firstArguments(tool)}
        call={(args, dryRun) => call(args, dryRun ? "dry" : "run")}
        question={question}
        watch={take && { call: (args) => call(args, "watch"), label: t("watch.take"), take }}
      />
    </>
  );
}
