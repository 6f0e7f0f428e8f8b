/** Places and states of the steps of a workflow. */

import type { Schemas } from "../../api/client";

type Workflow = Schemas["WorkflowAnswer"];
type Run = Pick<Schemas["Timeline"], "iterations" | "state">;
export type Step = { id: string; calls: string; column: number; row: number; needs: string[] };
export type StepState = "waiting" | "running" | "done" | "failed" | "skipped";

/** Return the steps in columns: each behind all that it needs. */
export function steps({ steps: written, needs }: Pick<Workflow, "steps" | "needs">): Step[] {
  const columns = new Map<string, number>();
  const column = (id: string): number => {
    const known = columns.get(id);
    if (known !== undefined) return known;
    columns.set(id, 0); // A circle, which no workflow has, would not end.
    const found = Math.max(-1, ...(needs[id] ?? []).map(column)) + 1;
    columns.set(id, found);
    return found;
  };
  const rows = new Map<number, number>();
  return written.map((block) => {
    const id = String(block.id);
    const at = column(id);
    const row = rows.get(at) ?? 0;
    rows.set(at, row + 1);
    return { id, calls: String(block.tool ?? block.agent ?? block.workflow), column: at, row, needs: needs[id] ?? [] };
  });
}

const OPEN = new Set(["queued", "ready", "running", "waiting"]);

/** Return the state of a step in a run, with the numbers of its calls that have ended and of all. Of one made again the last counts. */
export function stateOf(id: string, run: Run): { state: StepState; ended: number; all: number } {
  const calls = run.iterations.filter(({ live }) => live).flatMap((iteration) => iteration.calls);
  const own = calls.filter(({ useId }) => useId === id || useId.startsWith(`${id}[`));
  const uses = [...new Map(own.map((use) => [use.useId, use])).values()];
  const open = uses.filter((use) => OPEN.has(use.state)).length;
  const numbers = { ended: uses.length - open, all: uses.length };
  if (uses.length === 0) return { state: OPEN.has(run.state) ? "waiting" : "skipped", ...numbers };
  if (open > 0) return { state: "running", ...numbers };
  return { state: uses.every((use) => use.state === "done") ? "done" : "failed", ...numbers };
}
