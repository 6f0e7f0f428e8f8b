import { Link } from "@tanstack/react-router";
import { api, data } from "../../api/client";
import { Choice, Empty, Filters, Heading, Pages, plain, queryOf, useAddress, usePages, When } from "../../parts";
import { number, spoken, t } from "../../text";
import { ChangeAll } from "./ChangeAll";
import { NewRun } from "./NewRun";
import { STATES, StateBadge } from "./states";
import "./runs.css";

const PAGE = 50;
const FIELDS = ["agent", "tool", "caller", "sessionId", "since", "until"] as const;

/** The runs of agents and workflows, the newest first, by what they have in common. */
export function Page() {
  const [values, change] = useAddress("/runs", ["state", ...FIELDS]);
  const state = STATES.find((one) => one === values.state);
  const query = { ...queryOf(values), state };
  const pages = usePages(["runs", "list", query], (pageToken) =>
    data(api.GET("/runs", { params: { query: { ...query, pageSize: PAGE, pageToken } } })),
  );
  return (
    <div className="runs">
      <Heading text={t("page.runs")} />
      <NewRun />
      <Filters of={FIELDS} values={values} change={change}>
        <Choice
          label={t("runs.state")}
          value={state ?? ""}
          change={(one) => change({ state: one })}
          of={["", ...STATES]}
          text={(one) => (one === "" ? t("runs.all") : t(`run.${one}`))}
        />
        <ChangeAll query={query} />
      </Filters>
      <Pages pages={pages} rows={(page) => page.runs} none={<Empty title={t("runs.none")} hint={t("runs.none.hint")} />}>
        {(run) => (
          <li key={run.id} className="row">
            <StateBadge state={run.state} />
            <div className="row-main">
              <Link to={`/runs/${run.id}`} className="row-title">
                {run.agent}
              </Link>
              <p className="row-about">{plain(run.prompt.slice(0, 300))}</p>
              {run.error !== null && <p className="row-about wrong">{plain(spoken(run.error.code, run.error.message).slice(0, 300))}</p>}
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
