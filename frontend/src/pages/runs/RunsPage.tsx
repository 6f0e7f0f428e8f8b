import { Link, useNavigate, useSearch } from "@tanstack/react-router";
import { api, data } from "../../api/client";
import { Choice, Line } from "../../parts/fields";
import { Heading } from "../../parts/Heading";
import { plain } from "../../parts/json";
import { Pages, usePages } from "../../parts/Pages";
import { When } from "../../parts/small";
import { Empty } from "../../parts/states";
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
  const pages = usePages(["runs", "list", query], (pageToken) => data(api.GET("/runs", { params: { query: { ...query, pageToken } } })));
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
      <Pages pages={pages} rows={(page) => page.runs} none={<Empty title={t("runs.none")} hint={t("runs.none.hint")} />}>
        {(run) => (
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
        )}
      </Pages>
    </div>
  );
}
