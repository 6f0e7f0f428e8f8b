import { Link } from "@tanstack/react-router";
import { useEffect, useRef, useState } from "react";
import { api, data, type ToolItem } from "../../api/client";
import { Choice, Empty, Heading, Pages, usePages } from "../../parts";
import { t } from "../../text";
import { FacetPanel } from "./FacetPanel";
import { asQuery, FACETS, type Filters, SORTS, useFilters } from "./filters";
import { ToolRow } from "./ToolRow";
import "./tools.css";

const PAGE = 50;
type Found = { tools: ToolItem[]; nextPageToken?: string | null };
const ACTIONS = [["/tools/new", "build.new"], ["/tools/import", "import.title"], ["/tools/trash", "trash.title"]] as const;

function useTools(filters: Filters) {
  const { q, sort } = filters;
  const query = asQuery(filters);
  return usePages<Found>(["tools", "list", q, sort, query], (pageToken) =>
    q === ""
      ? data(api.GET("/tools", { params: { query: { ...query, sort, recommendedPageSize: PAGE, pageToken } } }))
      : data(api.GET("/tools/search", { params: { query: { ...query, q, pageSize: PAGE, pageToken } } })),
  );
}

/** Every tool of the catalogue: search, filters, switches, usage. */
export function Page() {
  const [filters, change] = useFilters();
  const pages = useTools(filters);
  const filtered = filters.q !== "" || FACETS.some((facet) => filters[facet].length > 0);

  return (
    <div className="tools">
      <header className="ends tools-head">
        <Heading text={t("page.tools")} />
        <div className="line">
          {ACTIONS.map(([to, text]) => (
            <Link key={to} to={to} className={to === "/tools/new" ? "button primary" : "button"}>
              {t(text)}
            </Link>
          ))}
        </div>
      </header>
      <div className="toolbar">
        <SearchBox value={filters.q} onChange={(q) => change({ q })} />
        {filters.q === "" && (
          <Choice className="sort" label={t("tools.sort")} value={filters.sort} change={(sort) => change({ sort })} of={SORTS} text={(one) => t(`tools.sort.${one}`)} />
        )}
      </div>
      <FacetPanel filters={filters} change={change} isFetching={pages.isFetching} />
      <section aria-label={t("page.tools")} aria-busy={pages.isFetching}>
        <Pages<Found, ToolItem>
          pages={pages}
          rows={(page) => page.tools}
          none={<Empty title={filtered ? t("tools.none") : t("state.empty")} hint={t(filtered ? "tools.none.hint" : "tools.empty.hint")} />}
        >
          {(tool) => <ToolRow key={tool.toolID} tool={tool} />}
        </Pages>
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
