/** The filters of the list of tools, as the address of the page has them. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import type { Schemas } from "../../api/client";

export const FACETS = ["sources", "kinds", "bundleIDs", "tags"] as const;
export type Facet = (typeof FACETS)[number];
export const SORTS = ["name", "createdAt", "modifiedAt", "lastCalledAt", "callCount"] as const;
export type Sort = (typeof SORTS)[number];

export type Filters = Record<Facet, string[]> & { q: string; sort: Sort; disabled: boolean };
type Address = Record<string, string | undefined>;

/** Return the filters of the address, and what changes them. */
export function useFilters(): [Filters, (change: Partial<Filters>) => void] {
  const address = useSearch({ strict: false }) as Address;
  const navigate = useNavigate();
  const list = (name: Facet) => (address[name] ?? "").split(",").filter((one) => one !== "");
  const filters: Filters = {
    q: address.q ?? "",
    sort: SORTS.find((one) => one === address.sort) ?? "name",
    disabled: address.disabled === "1",
    sources: list("sources"),
    kinds: list("kinds"),
    bundleIDs: list("bundleIDs"),
    tags: list("tags"),
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
        ...Object.fromEntries(FACETS.map((facet) => [facet, next[facet].join(",")])),
      },
    });
  };
  return [filters, change];
}

/** Return the filters as a query of the API; without `omitted`, whose other values a person may choose. */
export function asQuery(filters: Filters, omitted?: Facet) {
  const given = (facet: Facet) => (facet === omitted || filters[facet].length === 0 ? undefined : filters[facet]);
  return {
    sources: given("sources") as Schemas["ToolItem"]["source"][] | undefined,
    kinds: given("kinds"),
    bundleIDs: given("bundleIDs"),
    tags: given("tags"),
    includeDisabled: filters.disabled || undefined,
  };
}
