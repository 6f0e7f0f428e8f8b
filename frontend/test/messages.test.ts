import { expect, test } from "vitest";
import { de } from "../src/text/de";
import { en } from "../src/text/en";

const placeholders = (text: string) => [...text.matchAll(/\{(\w+)\}/g)].map(([, name]) => name);
const files = import.meta.glob<string>(["../src/**/*.{ts,tsx}", "!../src/text/*.ts", "!**/schema.d.ts"], {
  query: "?raw",
  import: "default",
  eager: true,
});
const source = Object.values(files).join("\n");

test("German lacks no text, and has no other", () => {
  expect(Object.keys(de).toSorted()).toEqual(Object.keys(en).toSorted());
  expect(Object.entries(de).filter(([, text]) => text.trim() === "")).toEqual([]);
});

test("German has the same values and forms", () => {
  const shape = ([key, text]: [string, string]) => [key, [...new Set(placeholders(text))], text.split("|").length];
  expect(Object.entries(de).map(shape)).toEqual(Object.entries(en).map(shape));
});

test("every text is used", () => {
  // A key may be put together: `source.${name}`.
  const made = [...source.matchAll(/`([\w.]+\.)\$\{/g)].map(([, start]) => start ?? "");
  const unused = Object.keys(en).filter(
    (key) => !source.includes(`"${key}"`) && !made.some((start) => start !== "" && key.startsWith(start)),
  );
  expect(unused).toEqual([]);
});

test("no text stands in a page itself", () => {
  const spoken = [...source.matchAll(/(?:aria-label|placeholder|title)="([A-Z][^"]+)"/g)].map(([, text]) => text);
  expect(spoken).toEqual([]);
});
