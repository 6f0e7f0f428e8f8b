import { expect, test } from "vitest";
import { place, type Span } from "../src/pages/runs/spans";

const span = (from: number, to: number): Span => ({ label: "x", kind: "call", from, to, state: "done" });

test("spans are placed in the order of their beginnings, as parts of the whole", () => {
  const { placed, gaps } = place([span(50, 100), span(0, 50)]);
  expect(placed.map(({ left, width }) => [left, width])).toEqual([
    [0, 0.5],
    [0.5, 0.5],
  ]);
  expect(gaps).toEqual([]);
});

test("a long time without work is short on the line, and named", () => {
  const { placed, gaps } = place([span(0, 100), span(100_100, 100_200)]);
  expect(gaps.map(({ ms }) => ms)).toEqual([100_000]);
  expect(placed[1]?.left).toBeCloseTo(120 / 220);
  expect(placed[1]?.width).toBeCloseTo(100 / 220);
});

test("spans that run beside each other are no gap", () => {
  const { placed, gaps } = place([span(0, 1000), span(10, 20), span(30, 1000)]);
  expect(gaps).toEqual([]);
  expect(placed.every(({ left, width }) => left >= 0 && left + width <= 1)).toBe(true);
});

test("a run without steps has nothing to place", () => {
  expect(place([])).toEqual({ placed: [], gaps: [] });
});
