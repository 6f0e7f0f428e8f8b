import { useState } from "react";
import type { Schemas } from "../../api/client";
import { Choice } from "../../parts/fields";
import { useSome } from "../../parts/Pages";
import { number, t } from "../../text";
import { place, type Placed, type Span } from "./spans";

const ZOOMS = [1, 2, 4, 8];

/** The model steps and calls of a run as bars over time; a table for those who do not see the bars. */
export function Timeline({ run }: { run: Schemas["Timeline"] }) {
  const [zoom, setZoom] = useState(1);
  const { placed, gaps } = place(spansOf(run));
  const [shown, more] = useSome(placed);
  const idleMs = gaps.reduce((sum, { ms }) => sum + ms, 0);
  if (placed.length === 0) return null;
  return (
    <section className="card" aria-labelledby="timeline">
      <div className="ends">
        <h2 id="timeline">{t("run.timeline")}</h2>
        <Choice className="sort" label={t("run.zoom")} value={zoom} change={setZoom} of={ZOOMS} text={(one) => `${one} ×`} />
      </div>
      <div className="timeline" tabIndex={0}>
        <ol style={{ width: `${zoom * 100}%` }}>
          {shown.map((span, index) => (
            <li key={index}>
              <Bar span={span} />
            </li>
          ))}
        </ol>
        {more}
      </div>
      {gaps.length > 0 && (
        <p className="muted">{t("run.gaps", { n: gaps.length, s: number(Math.round(idleMs / 1000)) })}</p>
      )}
    </section>
  );
}

function Bar({ span }: { span: Placed }) {
  const { label, kind, state, left, width, from, to } = span;
  return (
    <>
      <span className="bar-label">
        {label} <span className="muted">{t("test.duration", { ms: number(Math.round(to - from)) })}</span>
        <span className="visually-hidden"> {state}</span>
      </span>
      <span className="track" aria-hidden="true">
        <i
          className={`span ${kind} ${state}`}
          style={{ insetInlineStart: `${left * 100}%`, width: `max(3px, ${width * 100}%)` }}
        />
      </span>
    </>
  );
}

function spansOf(run: Schemas["Timeline"]): Span[] {
  const now = Date.now();
  const time = (moment: string | null | undefined) => (moment == null ? now : Date.parse(moment));
  return run.iterations.flatMap((step) => [
    { label: step.model, kind: "model" as const, from: time(step.beganAt), to: time(step.answeredAt), state: "done" },
    ...step.calls
      .filter((call) => call.beganAt != null)
      .map((call) => ({
        label: call.name,
        kind: call.runId === undefined ? ("call" as const) : ("run" as const),
        from: time(call.beganAt),
        to: time(call.endedAt),
        state: call.state,
      })),
  ]);
}
