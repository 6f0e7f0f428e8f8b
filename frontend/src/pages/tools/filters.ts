/** The filters of the list of tools, as the address of the page has them. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import type { operations } from "../../api/schema";

export const FACETS = ["sources", "kinds", "touches", "availability", "bundleIDs", "tags"] as const;
export type Facet = (typeof FACETS)[number];
export const SORTS = ["name", "createdAt", "modifiedAt", "lastCalledAt", "callCount"] as const;
export type Sort = (typeof SORTS)[number];

export type Filters = Record<Facet, string[]> & { q: string; sort: Sort; disabled: boolean };
type Address = Record<string, string | undefined>;

/** Return the values of each facet. */
export function chosenBy<T>(values: (facet: Facet) => T): Record<Facet, T> {
  return Object.fromEntries(FACETS.map((facet) => [facet, values(facet)])) as Record<Facet, T>;
}

/** Return the filters of the address, and what changes them. */
export function useFilters(): [Filters, (change: Partial<Filters>) => void] {
  const address = useSearch({ strict: false }) as Address;
  const navigate = useNavigate();
  const filters: Filters = {
    q: address.q ?? "",
    sort: SORTS.find((one) => one === address.sort) ?? "name",
    disabled: address.disabled === "1",
    ...chosenBy((facet) => (address[facet] ?? "").split(",").filter((one) => one !== "")),
  };
  const change = (part: Partial<Filters>) => {
    const next = { ...filters, ...part };
    void navigate({
      to: "/tools",
      replace: true,
      search: {
        q: next.q,
        sort: next.sort === "name" ? "" : next.sort,
        disabled: next.disabled ? "1" : "",
        ...chosenBy((facet) => next[facet].join(",")),
      },
    });
  };
  return [filters, change];
}

type Query = Pick<NonNullable<operations["count_tools"]["parameters"]["query"]>, Facet>;

/** Return the filters as a query of the API; without `omitted`, whose other values a person may choose. */
export function asQuery(filters: Filters, omitted?: Facet) {
  const given = chosenBy((facet) => (facet === omitted || filters[facet].length === 0 ? undefined : filters[facet]));
  // Of facets with a fixed set of values another one is refused by the server.
  return { ...(given as Query), includeDisabled: filters.disabled || undefined };
}
