import { Link } from "@tanstack/react-router";
import { api, type Schemas } from "../../api/client";
import { Code, Fold, plain, Shown, shownExact, useRead } from "../../parts";
import { spoken, t } from "../../text";
import { Change, ENDED } from "../runs/change";
import { StateBadge } from "../runs/states";
import { CallResult } from "../tools/Result";
import { useAnswer } from "./follow";

/** One turn: what the person said, and what the agent did and answered. */
export function Turn({ id }: { id: string }) {
  const run = useRead(["runs", id], () => api.GET("/runs/{runId}/timeline", { params: { path: { runId: id } } }));
  const active = run.data !== undefined && !ENDED.includes(run.data.state);
  const writing = useAnswer(id, active);
  return (
    <li>
      <Shown query={run}>
        {(found) => (
          <>
            <div className="stack bubble you">
              <span className="visually-hidden">{t("chat.you")}</span>
              {plain(found.prompt)}
            </div>
            <div className="stack bubble" aria-live="polite">
              <p className="line bubble-head">
                <strong>{found.agent}</strong>
                <Link to={`/runs/${id}`}>{t("chat.details")}</Link>
                <Change run={found} quiet />
              </p>
              {found.iterations.filter(({ live }) => live).map((step) => (
                <Step key={step.number} step={step} />
              ))}
              {writing !== "" && <p className="said-text">{plain(writing)}</p>}
              {active && <Working run={found} />}
              {found.error !== null && <p className="wrong">{plain(spoken(found.error.code, found.error.message))}</p>}
            </div>
          </>
        )}
      </Shown>
    </li>
  );
}

function Working({ run: { agent, iterations } }: { run: Schemas["Timeline"] }) {
  const asks = iterations.some(({ calls }) => calls.some(({ state, callId }) => state === "waiting" && callId !== undefined));
  return (
    <p className="muted">
      {t(asks ? "chat.asks" : "chat.thinking", { agent })} {asks && <Link to="/approvals">{t("page.approvals")}</Link>}
    </p>
  );
}

function Step({ step }: { step: Schemas["IterationRecord"] }) {
  return (
    <>
      {step.text !== "" && <p className="said-text">{plain(step.text)}</p>}
      {step.calls.map((call) => (
        <Fold key={call.useId} className="chat-call" title={<><code>{call.name}</code> <StateBadge state={call.state} /></>}>
          {() => (
            <>
              <Code text={shownExact(call.arguments)} />
              {call.callId !== undefined && <CallResult id={call.callId} />}
              {call.runId !== undefined && <Link to={`/runs/${call.runId}`}>{t("chat.details")}</Link>}
              {call.answer != null && <Code text={call.answer} />}
            </>
          )}
        </Fold>
      ))}
    </>
  );
}
