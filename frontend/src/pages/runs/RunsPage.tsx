import { useInfiniteQuery } from "@tanstack/react-query";
import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { api, data } from "../../api/client";
import { Choice, Line, More } from "../../parts/fields";
import { Heading } from "../../parts/Heading";
import { plain } from "../../parts/json";
import { When } from "../../parts/small";
import { Empty, Failure, Loading } from "../../parts/states";
import { number, t } from "../../text";
import { NewRun } from "./NewRun";
import { STATES, StateBadge } from "./states";
import "./runs.css";

const PAGE = 50;

/** The runs of agents and workflows, the newest first, by state and agent. */
export function Page() {
  const address = useSearch({ strict: false }) as Record<string, string | undefined>;
  const navigate = useNavigate();
  const state = STATES.find((one) => one === address.state);
  const agent = address.agent ?? "";
  const change = (part: { state?: string; agent?: string }) =>
    void navigate({ to: "/runs", replace: true, search: { state: state ?? "", agent, ...part } });
  const query = { state, agent: agent === "" ? undefined : agent, pageSize: PAGE };
  const pages = useInfiniteQuery({
    queryKey: ["runs", "list", query],
    queryFn: ({ pageParam: pageToken }: { pageParam: string | undefined }) =>
      data(api.GET("/runs", { params: { query: { ...query, pageToken } } })),
    initialPageParam: undefined,
    getNextPageParam: (page) => page.nextPageToken ?? undefined,
  });
  const runs = pages.data?.pages.flatMap((page) => page.runs) ?? [];
  return (
    <div className="runs">
      <Heading text={t("page.runs")} />
      <NewRun />
      <div className="toolbar">
        <Choice
          label={t("runs.state")}
          value={state ?? ""}
          change={(one) => change({ state: one })}
          of={["", ...STATES]}
          text={(one) => (one === "" ? t("runs.all") : t(`run.${one}`))}
        />
        <Line label={t("runs.agent")} type="search" value={agent} change={(one) => change({ agent: one })} />
      </div>
      {pages.isError && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data !== undefined && runs.length === 0 && <Empty title={t("runs.none")} hint={t("runs.none.hint")} />}
      <ul className="rows">
        {runs.map((run) => (
          <li key={run.id} className="row">
            <StateBadge state={run.state} />
            <div className="row-main">
              <Link to={`/runs/${run.id}`} className="row-title">
                {run.agent}
              </Link>
              <p className="row-about">{plain(run.prompt.slice(0, 300))}</p>
            </div>
            <p className="row-usage">
              <span>{t("run.tokens", { n: number(run.inputTokens + run.outputTokens) })}</span>
              <When moment={run.createdAt} />
            </p>
          </li>
        ))}
      </ul>
      {pages.hasNextPage && (
        <More load={() => void pages.fetchNextPage()} />
      )}
    </div>
  );
}
