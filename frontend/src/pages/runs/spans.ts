/** Places of model steps and calls on the line of time, with long gaps made short. */

export type Span = { label: string; kind: "model" | "call" | "run"; from: number; to: number; state: string };
export type Placed = Span & { left: number; width: number };

/** A time without work that is longer than this part of the work counts as this part. */
const GAP = 0.1;

/** Return each span with its left edge and width as parts of the whole, and the gaps that were shortened. */
export function place(spans: readonly Span[]): { placed: Placed[]; gaps: { left: number; ms: number }[] } {
  const sorted = spans.toSorted((one, other) => one.from - other.from);
  const worked = union(sorted);
  const work = Math.max(1, worked.reduce((sum, one) => sum + one.to - one.from, 0));
  const most = GAP * work;
  const cuts: { at: number; ms: number; less: number }[] = [];
  for (const [index, one] of worked.entries()) {
    const next = worked[index + 1];
    const idle = next === undefined ? 0 : next.from - one.to;
    if (idle > most) cuts.push({ at: one.to, ms: idle, less: idle - most });
  }
  const start = worked[0]?.from ?? 0;
  const at = (moment: number) =>
    moment - start - cuts.reduce((sum, cut) => sum + (cut.at < moment ? Math.min(cut.less, moment - cut.at) : 0), 0);
  const whole = Math.max(1, at(worked.at(-1)?.to ?? start));
  return {
    placed: sorted.map((one) => ({ ...one, left: at(one.from) / whole, width: (at(one.to) - at(one.from)) / whole })),
    gaps: cuts.map((cut) => ({ left: (at(cut.at) + most / 2) / whole, ms: cut.ms })),
  };
}

function union(sorted: readonly Span[]): { from: number; to: number }[] {
  const found: { from: number; to: number }[] = [];
  for (const { from, to } of sorted) {
    const last = found.at(-1);
    if (last !== undefined && from <= last.to) last.to = Math.max(last.to, to);
    else found.push({ from, to });
  }
  return found;
}
