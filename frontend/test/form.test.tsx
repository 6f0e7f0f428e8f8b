import type { RJSFSchema } from "@rjsf/utils";
import { act } from "react";
import { createRoot } from "react-dom/client";
import { afterEach, expect, test, vi } from "vitest";
import { readExact, writeExact } from "../src/parts/exact";
import { withoutDefaults } from "../src/parts/SchemaForm/schema";
import SchemaForm from "../src/parts/SchemaForm/SchemaForm";
import { errorsOf, validator } from "../src/parts/SchemaForm/validator";

vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
const made: { unmount: () => void }[] = [];
afterEach(() => act(() => made.splice(0).forEach((root) => root.unmount())));

function form(schema: Record<string, unknown>, value: Record<string, unknown>) {
  const box = document.body.appendChild(document.createElement("div"));
  const changes: unknown[] = [];
  const root = createRoot(box);
  made.push(root);
  act(() => root.render(<SchemaForm schema={schema} value={value} refused={[]} onChange={(next) => changes.push(next)} />));
  return { box, changes };
}

function type(field: Element | null, text: string) {
  const input = field as HTMLInputElement;
  Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, "value")?.set?.call(input, text);
  act(() => void input.dispatchEvent(new Event("input", { bubbles: true })));
}

const object = (properties: Record<string, unknown>, more = {}) => ({ type: "object" as const, properties, ...more }) as RJSFSchema;

test("nothing is filled in by itself, and a change keeps the rest of the value", () => {
  const schema = object({ a: { type: "string" }, n: { type: "integer", default: 7 }, o: object({ x: { type: "string", default: "y" } }) });
  const { box, changes } = form(schema, { a: "1", unknown: [1] });
  expect(changes).toEqual([]);
  expect(box.textContent).toContain("default 7");
  type(box.querySelector("#args_a"), "2");
  expect(changes).toEqual([{ a: "2", unknown: [1] }]);
});

test("a number is sent as it is typed, and stays while another field changes", () => {
  const nullable = { anyOf: [{ type: "number" }, { type: "null" }] };
  const { box, changes } = form(object({ a: { type: "integer" }, b: nullable, c: { type: "string" } }), readExact('{"b": 1.10}') as Record<string, unknown>);
  expect(box.querySelector<HTMLInputElement>("#args_b")?.value).toBe("1.10");
  for (const typed of ["12345678901234567890", "1.50", ".5"]) type(box.querySelector("#args_a"), typed);
  expect(changes.map((one) => writeExact(one))).toEqual(['{"b":1.10,"a":12345678901234567890}', '{"b":1.10,"a":1.50}', '{"b":1.10,"a":0.5}']);
});

test.each([
  ["a reference", object({ a: { $ref: "#/$defs/t" } }, { $defs: { t: { type: "string" } } }), "input#args_a"],
  ["a nullable text", object({ a: { type: ["string", "null"] } }), "input#args_a"],
  ["an enumeration", object({ a: { enum: ["x", null] } }), "select#args_a"],
  ["a date", object({ a: { type: "string", format: "date" } }), "input[type=date]"],
  ["anything", object({ a: {} }), "p.muted"],
  ["a schema in itself", object({ a: { $ref: "#/$defs/a" } }, { $defs: { a: object({ b: { $ref: "#/$defs/a" } }) } }), "button.add"],
  ["a list", object({ a: { type: "array", items: { type: "string" } } }), "button.add"],
  ["a map", object({ a: { type: "object", additionalProperties: { type: "string" } } }), "button.add"],
  ["several of a list", object({ a: { type: "array", uniqueItems: true, items: { enum: ["x", "y"] } } }), "input[type=checkbox]"],
])("%s has a field", (_, schema, selector) => {
  expect(form(schema, {}).box.querySelector(selector)).not.toBeNull();
});

test("of several forms the one that fits the value is shown", () => {
  const choice = (name: string) => ({ ...object({ kind: { const: name }, [name]: { type: "string" } }), required: ["kind"], title: name });
  const schema = object({ a: { oneOf: [choice("b"), choice("c")], discriminator: { propertyName: "kind" } } });
  const { box } = form(schema, { a: { kind: "c", c: "v" } });
  expect(box.querySelector("#args_a_c")).not.toBeNull();
  expect(box.querySelector("#args_a_b")).toBeNull();
});

test("errors stand at their field, those of the server too", () => {
  const schema = object({ a: { type: "array", items: { type: "integer" } }, b: { type: "string" } }, { required: ["b"] });
  const { errorSchema } = validator.validateFormData({ a: [1, "x"] }, schema);
  expect(errorSchema).toMatchObject({ a: { 1: { __errors: [expect.any(String)] } }, b: { __errors: [expect.any(String)] } });
  expect(errorsOf([{ path: "$.a[1]", message: "no" }])).toMatchObject({ a: { 1: { __errors: ["no"] } } });
});

test("a property of the name default stays", () => {
  const schema = object({ default: { type: "string", default: "x" } });
  expect(withoutDefaults(schema).properties).toMatchObject({ default: { type: "string" } });
  expect(withoutDefaults(schema).properties?.default).not.toHaveProperty("default");
});
