import { keepPreviousData, useInfiniteQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useEffect, useEffectEvent, useRef, useState } from "react";
import { api, data } from "../../api/client";
import { Choice } from "../../parts/fields";
import { Heading } from "../../parts/Heading";
import { Empty, Failure, Loading } from "../../parts/states";
import { t } from "../../text";
import { FacetPanel } from "./FacetPanel";
import { asQuery, FACETS, type Filters, SORTS, useFilters } from "./filters";
import { ToolRow } from "./ToolRow";
import "./tools.css";

const PAGE = 50;

function usePages(filters: Filters) {
  const { q, sort } = filters;
  const query = asQuery(filters);
  return useInfiniteQuery({
    queryKey: ["tools", "list", q, sort, query],
    queryFn: async ({ pageParam: pageToken }: { pageParam: string | undefined }) => {
      if (q !== "") {
        return data(api.GET("/tools/search", { params: { query: { ...query, q, pageSize: PAGE, pageToken } } }));
      }
      const listed = { ...query, sort, recommendedPageSize: PAGE, pageToken };
      return data(api.GET("/tools", { params: { query: listed } }));
    },
    initialPageParam: undefined,
    getNextPageParam: (page) => page.nextPageToken ?? undefined,
    placeholderData: keepPreviousData,
  });
}

/** Every tool of the catalogue: search, filters, switches, usage. */
export function Page() {
  const [filters, change] = useFilters();
  const pages = usePages(filters);
  const tools = pages.data?.pages.flatMap((page) => page.tools) ?? [];
  const filtered = filters.q !== "" || FACETS.some((facet) => filters[facet].length > 0);

  return (
    <div className="tools">
      <header className="tools-head">
        <Heading text={t("page.tools")} />
        <div className="actions">
          <Link to="/tools/new" className="button primary">
            {t("build.new")}
          </Link>
          <Link to="/tools/import" className="button">
            {t("import.title")}
          </Link>
          <Link to="/tools/trash" className="button">
            {t("trash.title")}
          </Link>
        </div>
      </header>
      <div className="toolbar">
        <SearchBox value={filters.q} onChange={(q) => change({ q })} />
        {filters.q === "" && (
          <Choice className="sort" label={t("tools.sort")} value={filters.sort} change={(sort) => change({ sort })} of={SORTS} text={(one) => t(`tools.sort.${one}`)} />
        )}
      </div>
      <FacetPanel filters={filters} change={change} />
      <section className="results" aria-label={t("page.tools")} aria-busy={pages.isFetching}>
        {pages.isError && <Failure error={pages.error} retry={() => void pages.refetch()} />}
        {pages.isPending && <Loading />}
        {pages.data !== undefined && tools.length === 0 && (
          <Empty title={filtered ? t("tools.none") : t("state.empty")} hint={filtered ? t("tools.none.hint") : undefined} />
        )}
        <ul className="rows">
          {tools.map((tool) => (
            <ToolRow key={tool.toolID} tool={tool} />
          ))}
        </ul>
        {pages.hasNextPage && <More load={() => void pages.fetchNextPage()} busy={pages.isFetchingNextPage} />}
      </section>
    </div>
  );
}

/** What is typed is shown at once; the address follows, and with it the search. */
function SearchBox({ value, onChange }: { value: string; onChange: (value: string) => void }) {
  const [typed, setTyped] = useState(value);
  const sent = useRef(value);
  useEffect(() => {
    if (value !== sent.current) setTyped(value);
    sent.current = value;
  }, [value]);
  return (
    <input
      type="search"
      className="search"
      aria-label={t("tools.search")}
      placeholder={t("tools.search")}
      value={typed}
      onChange={(event) => {
        setTyped(event.target.value);
        sent.current = event.target.value;
        onChange(event.target.value);
      }}
    />
  );
}

/** A button that presses itself when it comes into view. */
function More({ load, busy }: { load: () => void; busy: boolean }) {
  const button = useRef<HTMLButtonElement>(null);
  const seen = useEffectEvent(load);
  useEffect(() => {
    const watching = new IntersectionObserver(([entry]) => entry?.isIntersecting && seen(), { rootMargin: "400px" });
    if (button.current !== null) watching.observe(button.current);
    return () => watching.disconnect();
  }, []);
  return (
    <button ref={button} type="button" className="button more" disabled={busy} onClick={load}>
      {t("tools.more")}
    </button>
  );
}
