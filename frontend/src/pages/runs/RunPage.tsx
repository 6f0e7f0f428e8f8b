import { useQuery } from "@tanstack/react-query";
import { Link, useParams } from "@tanstack/react-router";
import { api, data, type Schemas } from "../../api/client";
import { Heading } from "../../parts/Heading";
import { plain } from "../../parts/json";
import { When } from "../../parts/small";
import { Shown } from "../../parts/states";
import { number, t } from "../../text";
import { Change } from "./change";
import { Fork } from "./Fork";
import { StateBadge } from "./states";
import { Timeline } from "./Timeline";
import { WorkflowGraph } from "./WorkflowGraph";
import "./runs.css";

const WORKFLOW = "workflow:";

/** One run: its answer or error, its steps and calls in time, and the runs below it. */
export function Page() {
  const { id } = useParams({ strict: false }) as { id: string };
  const path = { runId: id };
  const run = useQuery({
    queryKey: ["runs", id],
    queryFn: () => data(api.GET("/runs/{runId}/timeline", { params: { path } })),
  });
  const tree = useQuery({
    queryKey: ["runs", id, "tree"],
    queryFn: () => data(api.GET("/runs/{runId}/tree", { params: { path } })),
  });
  return (
    <div className="runs">
      <Shown query={run}>
        {(found) => (
          <>
            <Head run={found} />
            {found.agent.startsWith(WORKFLOW) && <WorkflowGraph name={found.agent.slice(WORKFLOW.length)} run={found} />}
            <Timeline run={found} />
            <Conversation run={found} />
            {tree.data !== undefined && tree.data.runs.length > 1 && <Below runs={tree.data.runs} />}
          </>
        )}
      </Shown>
    </div>
  );
}

function Head({ run }: { run: Schemas["Timeline"] }) {
  return (
    <header className="run-head">
      <Heading text={run.agent} title={`${run.agent}: ${t(`run.${run.state}`)}`}>
        {" "}
        <StateBadge state={run.state} />
      </Heading>
      <p className="row-facts">
        <span>{plain(run.caller)}</span>
        <When moment={run.createdAt} />
        <span>{t("run.tokens", { n: number(run.inputTokens + run.outputTokens) })}</span>
        {run.costUsd !== null && <span>{t("run.cost", { usd: run.costUsd.toFixed(4) })}</span>}
        <span>{t("run.active", { s: run.activeS.toFixed(1) })}</span>
      </p>
      <Actions run={run} />
    </header>
  );
}

function Actions({ run }: { run: Schemas["Timeline"] }) {
  return (
    <div className="run-actions">
      <Change run={run} />
      {/* A workflow would run all its steps anew. */}
      {!run.agent.startsWith(WORKFLOW) && (
        <>
          <Link className="button" to="/chat" search={{ session: run.sessionId, agent: run.agent }}>
            {t("chat.continue")}
          </Link>
          {run.iterations.length > 0 && <Fork run={run} />}
        </>
      )}
    </div>
  );
}

/** What was asked, what the model said and called, and the end. */
function Conversation({ run }: { run: Schemas["Timeline"] }) {
  return (
    <section className="card conversation" aria-labelledby="conversation">
      <h2 id="conversation">{t("run.conversation")}</h2>
      <pre tabIndex={0} className="said prompt">
        {plain(run.prompt)}
      </pre>
      {run.iterations.map((step) => (
        <div key={step.number} className={step.live ? "step" : "step replaced"}>
          <h3>
            {t("run.step", { n: step.number })} <span className="muted">{step.model}</span>
          </h3>
          {step.text !== "" && <pre tabIndex={0}>{plain(step.text)}</pre>}
          <ul className="bullets">
            {step.calls.map((call, index) => (
              <li key={index}>
                <code>{call.name}</code> <code>{plain(JSON.stringify(call.arguments))}</code> {call.state}
                {call.served === false && <span className="wrong"> {t("run.unserved")}</span>}
                {call.answer != null && <span className="muted"> {plain(call.answer)}</span>}
              </li>
            ))}
          </ul>
        </div>
      ))}
      {/* The answer of an agent is the text of its last step; that of a workflow is no step's. */}
      {run.answer !== null && run.answer !== run.iterations.at(-1)?.text && (
        <pre tabIndex={0} className="said answer">
          {plain(run.answer)}
        </pre>
      )}
      {run.error !== null && (
        <p className="wrong" role="alert">
          <code>{run.error.code}</code> {plain(run.error.message)}
        </p>
      )}
    </section>
  );
}

function Below({ runs }: { runs: Schemas["RunRecord"][] }) {
  return (
    <section className="card" aria-labelledby="below">
      <h2 id="below">{t("run.below")}</h2>
      <ul className="versions">
        {runs.map((run) => (
          <li key={run.id} style={{ paddingInlineStart: `${run.depth * 1.25}rem` }}>
            <Link to={`/runs/${run.id}`}>{run.agent}</Link> <StateBadge state={run.state} />
          </li>
        ))}
      </ul>
    </section>
  );
}
