import { keepPreviousData, useQueries } from "@tanstack/react-query";
import { api, type Bundle, data, type Schemas } from "../../api/client";
import { Button, Check, chosenAfter, useRead } from "../../parts";
import { type Key, t, translated } from "../../text";
import { asQuery, chosenBy, FACETS, type Facet, type Filters } from "./filters";
import { Toggle } from "./Toggle";

const FEW = 8;

type Props = { filters: Filters; change: (part: Partial<Filters>) => void; isFetching: boolean };

/** The values of each facet with their counts, as the other filters leave them: counted once the tools are shown. */
export function FacetPanel({ filters, change, isFetching }: Props) {
  const counts = useQueries({
    queries: [...FACETS, undefined].map((facet) => {
      const query = { ...asQuery(filters, facet), q: filters.q === "" ? undefined : filters.q };
      return {
        queryKey: ["tools", "facets", query],
        queryFn: () => data(api.GET("/tools/facets", { params: { query } })),
        placeholderData: keepPreviousData,
        enabled: !isFetching,
      };
    }),
  });
  const bundles = useRead(["bundles"], () => api.GET("/tools/bundles", { params: { query: { includeDisabled: true } } }));
  const byId = new Map(bundles.data?.bundles.map((bundle) => [bundle.id, bundle]));
  const chosen = FACETS.some((facet) => filters[facet].length > 0);

  return (
    <details className="facets" open={matchMedia("(min-width: 900px)").matches}>
      <summary>
        {t("tools.filters")}
        {chosen && (
          <Button look="quiet" onClick={() => change(chosenBy(() => []))}>{t("tools.filters.clear")}</Button>
        )}
      </summary>
      {FACETS.map((facet, index) => (
        <FacetGroup
          key={facet}
          facet={facet}
          counts={counts[index]?.data}
          chosen={filters[facet]}
          bundles={byId}
          onChange={(values) => change({ [facet]: values })}
        />
      ))}
      <Check on={filters.disabled} change={(disabled) => change({ disabled })} count={counts.at(-1)?.data?.disabled ?? 0}>{t("tools.filter.off")}</Check>
    </details>
  );
}

type GroupProps = {
  facet: Facet;
  counts: Schemas["FacetCounts"] | undefined;
  chosen: string[];
  bundles: Map<string, Bundle>;
  onChange: (values: string[]) => void;
};

function FacetGroup({ facet, counts, chosen, bundles, onChange }: GroupProps) {
  const found = Object.entries(counts?.[facet === "bundleIDs" ? "bundles" : facet] ?? {}).toSorted(([, a], [, b]) => b - a);
  const listed = found.filter(([value], index) => index < FEW || chosen.includes(value));
  // A bundle that is disabled has no enabled tool to count, and must still be found to enable it.
  const off = facet === "bundleIDs" ? [...bundles.values()].filter((one) => !one.isEnabled && !counts?.bundles[one.id]) : [];
  const values: [string, number][] = [...listed, ...off.map((one): [string, number] => [one.id, 0])];
  if (values.length === 0 || (facet === "availability" && values.length === 1 && chosen.length === 0)) return null;
  const name = (value: string) => {
    if (facet === "sources") return t(`source.${value}` as Key);
    if (facet === "touches") return t(`touch.${value}` as Key);
    if (facet === "availability") return t(`available.${value}` as Key);
    const bundle = facet === "bundleIDs" ? bundles.get(value) : undefined;
    return bundle === undefined ? value : translated(bundle).title;
  };
  return (
    <fieldset>
      <legend>{t(`tools.filter.${facet}`)}</legend>
      {values.map(([value, count]) => {
        const bundle = facet === "bundleIDs" ? bundles.get(value) : undefined;
        return (
          <div className="beside" key={value}>
            <Check on={chosen.includes(value)} change={(on) => onChange([...chosenAfter(new Set(chosen), value, on)])} count={count}>{name(value)}</Check>
            {bundle !== undefined && <Toggle bundle={bundle} />}
          </div>
        );
      })}
    </fieldset>
  );
}
