/** Usage by days: of one tool, or of several together. */

import type { Schemas } from "../../api/client";

export const NUMBERS = ["calls", "failures", "p50Ms", "p95Ms", "resultTokens"] as const;
export type Shows = (typeof NUMBERS)[number];
export type Sums = Record<Shows, number>;
type ToolDays = Schemas["ToolDays"];

const DAY_MS = 86_400_000;
const NOTHING: Sums = { calls: 0, failures: 0, p50Ms: 0, p95Ms: 0, resultTokens: 0 };

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
    all.p50Ms = Math.max(all.p50Ms, day.p50Ms ?? 0);
    all.p95Ms = Math.max(all.p95Ms, day.p95Ms ?? 0);
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
