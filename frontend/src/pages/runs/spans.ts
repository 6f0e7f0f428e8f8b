/** Places of model steps, calls and waits on the line of time, with long gaps made short. */

import type { Schemas } from "../../api/client";

/** `wait` and `approval` are times without work: for a worker or another attempt, and for a person. */
type Kind = "model" | "call" | "run" | "wait" | "approval";
export type Span = { kind: Kind; from: number; to: number; state: string };
export type Placed = Span & { left: number; width: number };
export type Row<S = Span> = { label: string; state: string; attempts: number; spans: S[] };
type Step = Schemas["Timeline"]["iterations"][number];

/** A time without work that is longer than this part of the work counts as this part. */
const GAP = 0.1;
const OPEN = new Set(["ready", "waiting"]);

/** Return the rows of a run: each model step, then its calls with their attempts and waits. */
export function rowsOf(iterations: readonly Step[], now: number): Row[] {
  // The latest moment may have come since.
  const time = (moment: string | null | undefined, from = 0) => (moment == null ? Math.max(from, now) : Date.parse(moment));
  return iterations.flatMap((step) => {
    const model: Span = { kind: "model", from: time(step.beganAt), to: time(step.answeredAt), state: "done" };
    const calls = step.calls.map((call) => {
      const spans: Span[] = [];
      let [since, wait]: [number, Kind] = [model.to, "wait"];
      for (const { beganAt, endedAt, ending } of call.history ?? []) {
        const from = time(beganAt);
        const to = time(endedAt, from);
        spans.push({ kind: wait, from: since, to: from, state: wait }, { kind: "call", from, to, state: ending ?? "running" });
        [since, wait] = [to, ending === "waits" ? "approval" : "wait"];
      }
      if (OPEN.has(call.state)) spans.push({ kind: wait, from: since, to: time(null, since), state: wait });
      const begun = time(call.beganAt, model.to);
      if (call.runId !== undefined) spans.push({ kind: "run", from: begun, to: time(call.endedAt, begun), state: call.state });
      return { label: call.name, state: call.state, attempts: call.attempts ?? 1, spans };
    });
    return [{ label: `${step.number} · ${step.model}`, state: "done", attempts: 1, spans: [model] }, ...calls].filter(
      ({ spans }) => spans.length > 0,
    );
  });
}

/** Return the rows with the left edge and width of each span as parts of the whole, and the gaps that were shortened. */
export function place(rows: readonly Row[]): { placed: Row<Placed>[]; gaps: number[] } {
  const all = rows.flatMap(({ spans }) => spans);
  const [begin, end] = [Math.min(...all.map(({ from }) => from)), Math.max(...all.map(({ to }) => to))];
  const busy = all.filter(({ kind }) => kind !== "wait" && kind !== "approval");
  const worked = union([...busy, { from: begin, to: begin }, { from: end, to: end }]);
  const most = GAP * Math.max(1, worked.reduce((sum, one) => sum + one.to - one.from, 0));
  const cuts: { at: number; ms: number }[] = [];
  for (const [index, one] of worked.entries()) {
    const ms = (worked[index + 1]?.from ?? one.to) - one.to;
    if (ms > most) cuts.push({ at: one.to, ms });
  }
  // A gap shrinks evenly, so that what begins or ends in it keeps its order.
  const at = (moment: number) =>
    cuts.reduce((sum, { at: from, ms }) => sum - (1 - most / ms) * Math.min(ms, Math.max(0, moment - from)), moment - begin);
  const whole = Math.max(1, at(end));
  const placed = (span: Span) => ({ ...span, left: at(span.from) / whole, width: (at(span.to) - at(span.from)) / whole });
  return { placed: rows.map((row) => ({ ...row, spans: row.spans.map(placed) })), gaps: cuts.map(({ ms }) => ms) };
}

function union(spans: readonly { from: number; to: number }[]): { from: number; to: number }[] {
  const found: { from: number; to: number }[] = [];
  for (const { from, to } of spans.toSorted((one, other) => one.from - other.from)) {
    const last = found.at(-1);
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
    else found.push({ from, to });
  }
  return found;
}
