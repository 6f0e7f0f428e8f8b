import { memo, useEffect, useMemo, useRef, useState } from "react";
import { flushSync } from "react-dom";
import type { Schemas } from "../../api/client";
import { Choice, useSome } from "../../parts";
import { number, t } from "../../text";
import { ENDED } from "./change";
import { place, type Placed, type Row, rowsOf } from "./spans";
import { StateBadge } from "./states";

const ZOOMS = [1, 2, 4, 8];

/** The model steps of a run and its calls, with their attempts and waits, as bars over time. */
export function Timeline({ run }: { run: Schemas["Timeline"] }) {
  const [zoom, setZoom] = useState(1);
  const [now, setNow] = useState(Date.now);
  const { placed, gaps } = useMemo(() => place(rowsOf(run.iterations, now)), [run.iterations, now]);
  // What runs grows.
  const active = !ENDED.includes(run.state);
  useEffect(() => {
    if (!active) return;
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [active]);
  const [shown, more] = useSome(placed);
  const box = useRef<HTMLDivElement>(null);
  // What is in the middle stays there.
  const change = (next: number) => {
    const { scrollLeft = 0, clientWidth = 0, scrollWidth = 1 } = box.current ?? {};
    flushSync(() => setZoom(next));
    box.current?.scrollTo({ left: ((scrollLeft + clientWidth / 2) / scrollWidth) * box.current.scrollWidth - clientWidth / 2 });
  };
  if (placed.length === 0) return null;
  return (
    <section className="card" aria-labelledby="timeline">
      <div className="ends">
        <h2 id="timeline">{t("run.timeline")}</h2>
        <Choice className="sort" label={t("run.zoom")} value={zoom} change={change} of={ZOOMS} text={(one) => `${one} ×`} />
      </div>
      <div
        className="timeline"
        tabIndex={0}
        ref={box}
        onPointerMove={({ buttons, pointerType, movementX, currentTarget }) => {
          if (buttons === 1 && pointerType === "mouse") currentTarget.scrollLeft -= movementX;
        }}
      >
        <ol style={{ width: `${zoom * 100}%` }}>
          {shown.map((row, index) => (
            <li key={index}>
              <Bars row={row} />
            </li>
          ))}
        </ol>
        {more}
      </div>
      {gaps.length > 0 && (
        <p className="muted">{t("run.gaps", { n: gaps.length, s: seconds(gaps.reduce((sum, ms) => sum + ms, 0)) })}</p>
      )}
    </section>
  );
}

const seconds = (ms: number) => number(Math.round(ms / 100) / 10);

const Bars = memo(function Bars({ row: { label, state, attempts, spans } }: { row: Row<Placed> }) {
  const sum = (isOne: (span: Placed) => boolean) => spans.filter(isOne).reduce((ms, { from, to }) => ms + to - from, 0);
  const asked = sum(({ kind }) => kind === "approval");
  return (
    <>
      <span className="bar-label line">
        {label} {state !== "done" && <StateBadge state={state} />}
        <span className="muted">{t("test.duration", { ms: number(Math.round(sum(({ kind }) => kind !== "wait" && kind !== "approval"))) })}</span>
        {attempts > 1 && <span className="muted">{t("test.attempts", { n: attempts })}</span>}
        {asked > 0 && <span className="muted">{t("run.asked", { s: seconds(asked) })}</span>}
      </span>
      <span className="track" aria-hidden="true">
        {spans.map((one, index) => (
          <i key={index} className={`span ${one.kind} ${one.state}`} style={{ insetInlineStart: `${one.left * 100}%`, width: `${one.width * 100}%` }} />
        ))}
      </span>
    </>
  );
});
