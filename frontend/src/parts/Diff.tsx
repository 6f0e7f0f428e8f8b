import { createPatch } from "diff";
import { t } from "../text";
import { DiffLines } from "./DiffLines";

const HEAD = 4;

/** The lines in which two texts differ, with a few around them. */
export default function Diff({ before, after }: { before: string; after: string }) {
  const lines = createPatch("", before, after, "", "", { context: 3 }).split("\n").slice(HEAD, -1);
  return lines.length === 0 ? <p className="muted">{t("diff.none")}</p> : <DiffLines text={lines.join("\n")} />;
}
