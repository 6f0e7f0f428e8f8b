/** What differs between the arguments of two calls, place by place. */

import { writeExact } from "../../parts";

export type Difference = { place: string; before?: string; after?: string };

/** Return the places whose values differ, those of the second value first. */
export function differences(before: unknown, after: unknown): Difference[] {
  const [old, now] = [flat(before), flat(after)];
  const places = new Set([...now.keys(), ...old.keys()]);
  return [...places]
    .filter((place) => old.get(place) !== now.get(place))
    .map((place) => ({ place, before: old.get(place), after: now.get(place) }));
}

function flat(value: unknown, place = "", found = new Map<string, string>()): Map<string, string> {
  const parts = typeof value === "object" && value !== null ? Object.entries(value) : [];
  if (parts.length === 0) return found.set(place, writeExact(value));
  for (const [key, part] of parts) {
    const step = Array.isArray(value) ? `[${key}]` : place === "" ? key : `.${key}`;
    flat(part, place + step, found);
  }
  return found;
}

type Same = {
  tool: string;
  bundle: string;
  toolDigest: string;
  argumentsDigest: string;
  rule: string;
  reason: string;
};

/** Return the requests in groups that a person can decide about at once: nothing but caller and time differs. */
export function groupsOf<T extends Same>(requests: readonly T[]): T[][] {
  return groupsBy(requests, (one) => [one.tool, one.bundle, one.toolDigest, one.argumentsDigest, one.rule, one.reason]);
}

/** Return the items in groups of the same key. */
export function groupsBy<T>(items: readonly T[], keyOf: (one: T) => unknown): T[][] {
  const groups = new Map<string, T[]>();
  for (const one of items) {
    const key = JSON.stringify(keyOf(one));
    groups.set(key, [...(groups.get(key) ?? []), one]);
  }
  return [...groups.values()];
}
