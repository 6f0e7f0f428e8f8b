import { expect, test } from "vitest";
import { differences, groupsOf } from "../src/pages/approvals/diff";

test("differences name their place, and both values", () => {
  const before = { to: ["ann", "bob"], text: "hi", deep: { same: 1, gone: true } };
  const after = { to: ["ann", "eve"], text: "hi", deep: { same: 1 }, added: {} };
  expect(differences(before, after)).toEqual([
    { place: "to[1]", before: '"bob"', after: '"eve"' },
    { place: "added", before: undefined, after: "{}" },
    { place: "deep.gone", before: "true", after: undefined },
  ]);
  expect(differences(before, before)).toEqual([]);
});

test("requests that differ in nothing that is decided about are one group", () => {
  const one = { tool: "look", bundle: "b", toolDigest: "1", argumentsDigest: "2", rule: "", reason: "r" };
  const other = { ...one, argumentsDigest: "3" };
  expect(groupsOf([one, other, { ...one }]).map((group) => group.length)).toEqual([2, 1]);
});
