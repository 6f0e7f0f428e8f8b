import { Link, useParams } from "@tanstack/react-router";
import { Fragment, memo } from "react";
import { api, type Schemas } from "../../api/client";
import { Card, Code, Fold, Heading, plain, Shown, useRead, useSome, Value, When, writeExact } from "../../parts";
import { number, spoken, t } from "../../text";
import { CallResult } from "../tools/Result";
import { Change } from "./change";
import { Fork } from "./Fork";
import { StateBadge } from "./states";
import { Timeline } from "./Timeline";
import { WorkflowGraph } from "./WorkflowGraph";
import "./runs.css";

type Iteration = Schemas["Timeline"]["iterations"][number];
const WORKFLOW = "workflow:";
/** Call states with a result, which is shown at once for the first few that failed. */
const ENDS = new Set(["done", "failed", "discarded", "unknown"]);
const FEW = 10;

/** One run: its answer or error, its steps and calls in time, and the runs below it. */
export function Page() {
  const { id } = useParams({ strict: false }) as { id: string };
  const run = useRead(["runs", id], () => api.GET("/runs/{runId}/timeline", { params: { path: { runId: id } } }));
  return (
    <div className="runs">
      {run.data === undefined && <Heading text={t("page.runs")} />}
      <Shown query={run}>
        {(found) => (
          // Of another run: else a quick click would still act on the one before.
          <Fragment key={found.id}>
            <Head run={found} />
            {found.agent.startsWith(WORKFLOW) && <WorkflowGraph name={found.agent.slice(WORKFLOW.length)} run={found} />}
            <Timeline run={found} />
            <Conversation run={found} />
            <Tree run={found} />
          </Fragment>
        )}
      </Shown>
    </div>
  );
}

function Head({ run }: { run: Schemas["Timeline"] }) {
  return (
    <header className="stack">
      <Heading text={run.agent} title={`${run.agent}: ${t(`run.${run.state}`)}`}>
        {" "}
        <StateBadge state={run.state} />
      </Heading>
      <p className="line row-facts">
        <span>{plain(run.caller)}</span>
        <When moment={run.createdAt} />
        <span>{t("run.tokens", { n: number(run.inputTokens + run.outputTokens) })}</span>
        {run.costUsd !== null && run.costUsd > 0 && <span>{t("run.cost", { usd: number(Math.round(run.costUsd * 10_000) / 10_000) })}</span>}
        <span>{t("run.active", { s: number(Math.round(run.activeS * 10) / 10) })}</span>
        {run.forkedFromId !== null && <Link to={`/runs/${run.forkedFromId}`}>{t("run.forked")}</Link>}
        {run.parentId === null && <Link to="/runs" search={{ agent: run.agent } as never}>{t("run.others")}</Link>}
      </p>
      {run.error !== null && (
        <p className="problem" role="alert">
          <code>{run.error.code}</code> {plain(spoken(run.error.code, run.error.message))}
        </p>
      )}
      <div className="line run-actions">
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
    </header>
  );
}

/** What was asked, what the model said and called, and its answer. */
function Conversation({ run }: { run: Schemas["Timeline"] }) {
  const [steps, more] = useSome(run.iterations, FEW);
  return (
    <Card className="stack" title={t("run.conversation")}>
      <Code className="said" text={run.prompt} />
      {steps.map((step) => (
        <Step key={step.number} step={step} />
      ))}
      {more}
      {/* The answer of an agent is the text of its last step; that of a workflow is no step's. */}
      {run.answer !== null && run.answer !== run.iterations.at(-1)?.text && <Code className="said answer" text={run.answer} />}
    </Card>
  );
}

/** Return the names of the workflow's steps that made these calls. */
const stepsOf = (calls: Iteration["calls"]) => [...new Set(calls.map(({ useId }) => useId.replace(/\[.*/, "")))].join(", ");

function Step({ step }: { step: Iteration }) {
  const [calls, more] = useSome(step.calls);
  return (
    <div className={step.live ? "stack" : "stack replaced"}>
      <h3>
        {t("run.step", { n: step.number })} <span className="muted">{step.model === "workflow" ? stepsOf(step.calls) : step.model}</span>
      </h3>
      {step.text !== "" && <Code text={step.text} />}
      <ul className="calls">
        {calls.map((call, index) => (
          <Call key={index} call={call} open={index < FEW} />
        ))}
      </ul>
      {more}
    </div>
  );
}

/** One call of a step. Of thousands only those that have changed are made again. */
const Call = memo(function Call({ call, open }: { call: Iteration["calls"][number]; open: boolean }) {
  const { state, name, runId, callId, agent, served, answer } = call;
  return (
    <li>
      <StateBadge state={state} />{" "}
      {callId === undefined ? <code>{name}</code> : <Link to="/tools" search={{ q: name, disabled: "1" }}>{name}</Link>} <Value text={writeExact(call.arguments)} />{" "}
      {runId !== undefined && <Link to={`/runs/${runId}`}>{t("run.child", { agent: agent ?? "" })}</Link>}
      {state === "waiting" && callId !== undefined && <Link to="/approvals">{t("page.approvals")}</Link>}
      {served === false && <span className="wrong"> {t("run.unserved")}</span>}
      {answer != null && <Value text={answer} />}
      {callId !== undefined && ENDS.has(state) && (
        <Fold title={t("test.result")} open={state !== "done" && open}>{() => <CallResult id={callId} />}</Fold>
      )}
    </li>
  );
});

/** The whole tree that a run is part of, from its first run on. */
function Tree({ run: { id, rootId } }: { run: Schemas["Timeline"] }) {
  const tree = useRead(["runs", rootId, "tree"], () => api.GET("/runs/{runId}/tree", { params: { path: { runId: rootId } } }));
  const [shown, more] = useSome(tree.data?.runs ?? []);
  if (shown.length < 2) return null;
  return (
    <Card title={t("run.below")}>
      <ul className="versions">
        {shown.map((run) => (
          <li key={run.id} style={{ paddingInlineStart: `${run.depth * 1.25}rem` }}>
            {run.id === id ? <strong>{run.agent}</strong> : <Link to={`/runs/${run.id}`}>{run.agent}</Link>} <StateBadge state={run.state} />
          </li>
        ))}
      </ul>
      {more}
    </Card>
  );
}
