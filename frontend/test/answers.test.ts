import { expect, test } from "vitest";
import { answersOf, type Kind, manifestOf, type Recipe } from "../src/pages/authoring/recipe";

const COMMON: Recipe = {
  name: "a-b",
  description: "Does: much.",
  version: "v2",
  arguments: [
    { name: "city", type: "string", description: "A city", required: true },
    { name: "days", type: "integer" },
    { name: "tags", type: "list", required: true },
  ],
};
const RECIPES: [Kind, Recipe][] = [
  ["http", { method: "GET", address: "https://", answer: "json" }],
  [
    "http",
    {
      method: "POST",
      address: "https://api.example.com/${city}?key=${API_KEY}",
      query: { n: "${days}" },
      headers: { Key: "${OTHER_KEY}" },
      body: { a: "${city}", n: "3", yes: "true", list: "[1]" },
      part: "$.a.b",
      hosts: ["b.example.com"],
      answer: "text",
    },
  ],
  ["command", { program: "cat", words: ["-n", "${city}"], answer: "json" }],
  ["command", { program: "cat", words: ["-"], read: ["a"], write: ["b"], hosts: ["c"], env: ["D"], secrets: ["E_F"], answer: "text" }],
  ["composite", { steps: [{ id: "first", tool: "x", args: { n: "3", to: "${city}" } }, { id: "second", tool: "y", args: {} }], output: "${steps.first.value}" }],
];

test("answers make a manifest, and the manifest the same answers", () => {
  for (const [kind, own] of RECIPES) {
    const recipe = { ...COMMON, ...own };
    expect(answersOf(manifestOf(kind, recipe))).toEqual({ kind, recipe });
  }
});

test("a text of a step stays one, whatever it looks like", () => {
  const steps = [{ id: "first", tool: "say", args: { text: "42" } }];
  const made = manifestOf("composite", { ...COMMON, steps }, { say: { argSchema: { properties: { text: { type: "string" } } } } });
  expect(answersOf(made)).toMatchObject({ recipe: { steps } });
});

test("what no question asks about is named", () => {
  const made = manifestOf("http", { ...COMMON, address: "https://a.example.com" });
  expect(answersOf({ ...made, limits: { timeout_s: 3 }, permissions: { network: true } })).toEqual({ lacks: ["network", "timeout_s"] });
  expect(answersOf({ ...made, permissions: { ...(made.permissions as object), fs: {} } })).toHaveProperty("recipe");
  expect(answersOf({ ...made, kind: "python" })).toEqual({ lacks: ["kind"] });
});

test("an example stays while it fits the arguments", () => {
  const examples = [{ params: { city: "Basel", tags: [] } }, { params: { city: "Basel" } }];
  expect(manifestOf("command", { ...COMMON, examples }).examples).toEqual([examples[0]]);
});

test("a manifest that says that there is no network has the same answers", () => {
  const made = manifestOf("command", { ...COMMON, program: "cat" });
  expect(answersOf({ ...made, permissions: { network: false } })).toEqual(answersOf(made));
});
