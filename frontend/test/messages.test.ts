import { expect, test } from "vitest";
import { texts } from "../src/text";

const placeholders = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
const files = import.meta.glob<string>(["../src/**/*.{ts,tsx}", "!../src/text/*", "!**/schema.d.ts"], {
  query: "?raw",
  import: "default",
  eager: true,
});
const source = Object.values(files).join("\n");

test("no text is empty", () => {
  expect(Object.entries(texts).filter(([, both]) => both.some((text) => text.trim() === ""))).toEqual([]);
});

test("German has the same values and forms", () => {
  const shape = (text: string) => [[...new Set(placeholders(text))].toSorted(), text.split("|").length];
  expect(Object.entries(texts).filter(([, [english, german]]) => JSON.stringify(shape(english)) !== JSON.stringify(shape(german)))).toEqual([]);
});

test("every text is used", () => {
  // A key may be put together: `source.${name}`.
  const made = [...source.matchAll(/`([\w.]+\.)\$\{/g)].map(([, start]) => start ?? "");
  const unused = Object.keys(texts).filter(
    (key) => !source.includes(`"${key}"`) && !made.some((start) => start !== "" && key.startsWith(start)),
  );
  expect(unused).toEqual([]);
});

test("no text stands in a page itself", () => {
  const spoken = [...source.matchAll(/(?:aria-label|placeholder|title)="([A-Z][^"]+)"/g)].map(([, text]) => text);
  expect(spoken).toEqual([]);
});
