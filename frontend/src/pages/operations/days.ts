/** Usage by days: of one tool, or of several together. */

import type { Schemas } from "../../api/client";

export const NUMBERS = ["calls", "failures", "p50Ms", "p95Ms", "resultTokens"] as const;
export type Shows = (typeof NUMBERS)[number];
/** Durations are null without a call. */
export type Sums = Record<"calls" | "failures" | "resultTokens", number> & Record<"p50Ms" | "p95Ms", number | null>;
type ToolDays = Schemas["ToolDays"];

const DAY_MS = 86_400_000;
const NOTHING: Sums = { calls: 0, failures: 0, p50Ms: null, p95Ms: null, resultTokens: 0 };

/** Return the first moment of the day (UTC) on which a time of so many days, with today, begins. */
export function firstDay(days: number): string {
  return new Date((Math.floor(Date.now() / DAY_MS) - days + 1) * DAY_MS).toISOString();
}

/** Return the sums of days; of durations the longest counts. */
export function sumOf(days: readonly Schemas["Day"][]): Sums {
  const all = { ...NOTHING };
  for (const day of days) {
    all.calls += day.calls;
    all.failures += day.failures;
    all.resultTokens += day.resultTokens;
    if (day.p50Ms !== null) all.p50Ms = Math.max(all.p50Ms ?? 0, day.p50Ms);
    if (day.p95Ms !== null) all.p95Ms = Math.max(all.p95Ms ?? 0, day.p95Ms);
  }
  return all;
}

/** Return each day since the first, also those without calls, with the sums of these tools. */
export function byDay(tools: readonly ToolDays[], first: string): { begins: string; sums: Sums }[] {
  const found = new Map<string, Schemas["Day"][]>();
  for (const day of tools.flatMap((tool) => tool.days)) {
    const key = day.begins.slice(0, 10);
    found.set(key, [...(found.get(key) ?? []), day]);
  }
  const start = Date.parse(first);
  const count = Math.floor((Date.now() - start) / DAY_MS) + 1;
  return Array.from({ length: count }, (_, index) => {
    const begins = new Date(start + index * DAY_MS).toISOString();
    return { begins, sums: sumOf(found.get(begins.slice(0, 10)) ?? []) };
  });
}
