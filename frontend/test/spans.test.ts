import { expect, test } from "vitest";
import { stateOf } from "../src/pages/runs/graph";
import { place, type Row, rowsOf, type Span } from "../src/pages/runs/spans";

const row = (...spans: Span[]): Row => ({ label: "one", state: "done", attempts: 1, spans });
const span = (from: number, to: number, kind: Span["kind"] = "call"): Span => ({ kind, from, to, state: "done" });
const placesOf = (...rows: Row[]) => place(rows).placed.flatMap(({ spans }) => spans.map(({ left, width }) => [left, width]));

test("spans are placed side by side and one after the other", () => {
  expect(placesOf(row(span(0, 50)), row(span(50, 100)))).toEqual([
    [0, 0.5],
    [0.5, 0.5],
  ]);
});

test("a long wait between them is short, and its length is known", () => {
  const rows = [row(span(0, 500)), row(span(100_500, 101_000))];
  expect(place(rows).gaps).toEqual([100_000]);
  const [first, second] = placesOf(...rows);
  expect(first?.[1]).toBeCloseTo(500 / 1100);
  expect(second?.[0]).toBeCloseTo(600 / 1100);
});

test("calls at the same time make no wait", () => {
  const rows = [row(span(0, 1000)), row(span(100, 300)), row(span(900, 1000))];
  expect(place(rows).gaps).toEqual([]);
  expect(placesOf(...rows).map(([left]) => left)).toEqual([0, 0.1, 0.9]);
});

test("a wait that has not ended is short, and no bar leaves the line", () => {
  const rows = [row(span(0, 1000)), row(span(1000, 3_601_000, "approval"))];
  expect(place(rows).gaps).toEqual([3_600_000]);
  const [, waits] = placesOf(...rows);
  expect(waits?.[0]).toBeCloseTo(1000 / 1100);
  expect(waits?.[1]).toBeCloseTo(100 / 1100);
});

test("a call is its attempts, what it waited for between them, and a person", () => {
  const moment = (ms: number) => new Date(ms).toISOString();
  const attempt = (from: number, to: number, ending: string) => ({ worker: "w", reason: null, beganAt: moment(from), endedAt: moment(to), ending });
  const call = { useId: "u", name: "look", arguments: {}, callId: "c", attempts: 2 };
  const history = [attempt(20, 21, "waits"), attempt(40, 50, "retry"), attempt(80, 90, "done")];
  const step = {
    number: 1, live: true, model: "scripted", inputTokens: 0, outputTokens: 0, costUsd: null, text: "",
    beganAt: moment(0), answeredAt: moment(10), endedAt: moment(90),
    calls: [{ ...call, state: "done", history }, { ...call, state: "waiting", history: history.slice(0, 1) }, { ...call, state: "refused" }],
  };
  const [, done, waiting, ...none] = rowsOf([step], 100);
  expect(done?.spans.map(({ kind, from, to }) => [kind, from, to])).toEqual([
    ["wait", 10, 20],
    ["call", 20, 21],
    ["approval", 21, 40],
    ["call", 40, 50],
    ["wait", 50, 80],
    ["call", 80, 90],
  ]);
  expect(waiting?.spans.at(-1)).toEqual({ kind: "approval", from: 21, to: 100, state: "approval" });
  expect(none).toEqual([]);
});

test("of a step that was made again the last call counts", () => {
  const step = (...states: string[]) => ({ live: true, calls: states.map((state, item) => ({ useId: `many[${item}]`, state })) });
  const run = { state: "done", iterations: [step("failed", "done"), step("done")] } as Parameters<typeof stateOf>[1];
  expect(stateOf("many", run)).toEqual({ state: "done", ended: 2, all: 2 });
});
