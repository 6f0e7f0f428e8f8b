import { expect, test, vi } from "vitest";
import { texts } from "../src/text/texts";

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

test("a German page says in German what the server says, part by part, and leaves what it does not know", async () => {
  localStorage.setItem("toolcrib.language", "de");
  vi.resetModules();
  const { said, spoken } = await import("../src/text");
  localStorage.removeItem("toolcrib.language");
  expect(said("nobody has trusted this tool; its calls may: network: any public host: toolcrib trust greet")).toBe(
    "niemand hat diesem Tool vertraut; seine Aufrufe dürfen: Netzwerk: jeder öffentliche Host: toolcrib trust greet",
  );
  expect(said("call send: write a (b); run $&")).toBe("send aufrufen: schreiben: a (b); ausführen: $&");
  expect(said("Operation not permitted (Linux 5.12 or newer is needed.)")).toBe("Nicht erlaubt (Nötig ist Linux ab 5.12.)");
  expect(said("My own reason; and more")).toBe("My own reason; and more");
  expect(spoken("tool_failed", "exit 3")).toBe("Das Tool lief und schlug fehl. (exit 3)");
  expect(spoken("yaml-tab", "line 2")).toContain("Tabulator");
  expect(spoken("404", "HTTP 404")).toBe("HTTP 404");
});
