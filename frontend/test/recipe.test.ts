import { expect, test } from "vitest";
import { nextVersion } from "../src/pages/authoring/drafts";
import { manifestOf } from "../src/pages/authoring/recipe";
import { toYaml } from "../src/pages/authoring/yaml";
import { readExact } from "../src/parts/exact";

test("a request may reach its own host, and its names in capitals are secrets", () => {
  const made = manifestOf("http", {
    name: "weather",
    description: "Tells the weather.",
    arguments: [{ name: "city", type: "string", required: true }, { name: "LIMIT", type: "integer" }],
    address: "https://api.example.com/weather/${city}",
    query: { n: "${LIMIT}" },
    headers: { Key: "${API_KEY}" },
  });
  expect(made.permissions).toEqual({
    network: { allow: ["api.example.com"] },
    secrets: { API_KEY: { type: "string", required: true } },
  });
  expect(made.inputs).toEqual({
    schema: {
      type: "object",
      additionalProperties: false,
      required: ["city"],
      properties: { city: { type: "string" }, LIMIT: { type: "integer" } },
    },
  });
});

test("where the address lacks, the fault is in the address and not in the permissions", () => {
  expect(manifestOf("http", { name: "weather", address: "https://" }).permissions).toEqual({ network: true });
});

test("numbers and truth values among the arguments of a step stay what they are", () => {
  const steps = [{ id: "first", tool: "count", args: { to: "3", fast: "true", name: "${name}", text: "3 of 4" } }];
  const made = manifestOf("composite", { name: "two", steps });
  expect(made.exec).toEqual({
    composite: { steps: [{ id: "first", tool: "count", args: { to: 3, fast: true, name: "${name}", text: "3 of 4" } }] },
  });
});

test("YAML has quotes only where a text could be something else", () => {
  const made = toYaml({ name: "a_b", version: 1, about: "Yes: it is.", on: "no", list: ["${x}", "two words"], none: [], sub: [{ id: "a", args: { b: 1 } }] });
  expect(made).toBe(
    'name: a_b\nversion: 1\nabout: "Yes: it is."\n"on": "no"\nlist:\n  - "${x}"\n  - two words\nnone: []\nsub:\n  - id: a\n    args:\n      b: 1\n',
  );
});

test("the next version is one higher, as it is written", () => {
  expect(nextVersion("name: a\nversion: 1\n")).toBe("name: a\nversion: 2\n");
  expect(nextVersion("version: 'v1.9'\n")).toBe("version: 'v1.10'\n");
  expect(JSON.parse(nextVersion('{"version": "v1", "impl": {}}'))).toMatchObject({ version: "v2" });
});

test("numbers of a manifest are written as they were", () => {
  expect(toYaml(readExact('{"low": 1.10, "id": 12345678901234567890}') as Record<string, unknown>)).toBe("low: 1.10\nid: 12345678901234567890\n");
});
