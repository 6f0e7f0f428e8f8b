import type { RJSFSchema } from "@rjsf/utils";
import { act } from "react";
import { createRoot } from "react-dom/client";
import { afterEach, expect, test, vi } from "vitest";
import { readExact, writeExact } from "../src/parts/exact";
import { formSchema } from "../src/parts/SchemaForm/schema";
import SchemaForm from "../src/parts/SchemaForm/SchemaForm";
import { errorsOf, problemsIn, problemsOf } from "../src/parts/SchemaForm/validator";

vi.stubGlobal("IS_REACT_ACT_ENVIRONMENT", true);
const made: { unmount: () => void }[] = [];
afterEach(() => act(() => made.splice(0).forEach((root) => root.unmount())));

function form(schema: Record<string, unknown>, value: Record<string, unknown>) {
  const box = document.body.appendChild(document.createElement("div"));
  const changes: unknown[] = [];
  const root = createRoot(box);
  made.push(root);
  act(() => root.render(<SchemaForm schema={schema} value={value} onChange={(next) => changes.push(next)} />));
  return { box, changes };
}

function type(field: Element | null, text: string) {
  const input = field as HTMLInputElement;
  Object.getOwnPropertyDescriptor(Object.getPrototypeOf(input), "value")?.set?.call(input, text);
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
  ["a reference", object({ a: { $ref: "#/$defs/t" } }, { $defs: { t: { type: "string" } } }), "textarea#args_a"],
  ["a nullable text", object({ a: { type: ["string", "null"] } }), "textarea#args_a"],
  ["an enumeration", object({ a: { enum: ["x", null] } }), "select#args_a"],
  ["a date", object({ a: { type: "string", format: "date" } }), "input[type=date]"],
  ["anything", object({ a: {} }), "textarea#args_a"],
  ["yes or no", object({ a: { type: "boolean" } }), "select#args_a"],
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
  const schema = object({ "a.b": { type: "array", items: { type: "integer" } }, c: { type: "string" } }, { required: ["c"] });
  const own = errorsOf(problemsOf(schema, { "a.b": [1, "x"] }));
  expect(own).toEqual({ "a.b": { 1: { __errors: ["Must be: Whole number"] } }, c: { __errors: ["Required"] } });
  const served = problemsIn([{ path: '$["a.b"][1].c', message: "no" }]);
  expect(errorsOf(served)).toEqual({ "a.b": { 1: { c: { __errors: ["no"] } } } });
});

const kind = (name: string) => object({ kind: { const: name }, [name]: { type: "integer" } }, { required: ["kind"] });
const closed = (properties: object) => object({ ...properties }, { additionalProperties: false, required: Object.keys(properties) });
test.each([
  [{ type: "string", minLength: 2 }, "x", ["At least 2 characters"]],
  [{ type: ["integer", "null"] }, "x", ["Must be: Whole number, No value (null)"]],
  [{ enum: ["x", 1] }, "y", ["Must be one of: x, 1"]],
  [{ $ref: "#/$defs/t" }, 0, ["Must be 1 or more"]],
  [{ anyOf: [{ type: "string" }, { type: "integer" }] }, true, ["Fits none of the choices"]],
  [{ anyOf: [{ type: "string", pattern: "^a" }, { type: "null" }] }, "b", ["Must match the pattern ^a"]],
  [{ oneOf: [kind("b"), kind("c")] }, { kind: "c", c: "v" }, ["Must be: Whole number"]],
  [{ oneOf: [closed({ b: { minLength: 2 } }), closed({ c: {}, d: {} })] }, { b: "v" }, ["At least 2 characters"]],
  [{ oneOf: [{ type: "integer" }, { type: "number" }] }, 1, ["Fits more than one of the choices"]],
  [{ type: "object", propertyNames: { pattern: "^a" } }, { b: 1 }, ["The name b is not allowed"]],
  [{ type: "object", additionalProperties: false }, { b: 1 }, ["Is not known here"]],
])("%j and %j: %j", (schema, value, messages) => {
  const root = { properties: { a: schema }, $defs: { t: { type: "integer", minimum: 1 } } };
  expect(problemsOf(root, { a: value }).map(({ message }) => message)).toEqual(messages);
});

test.each([
  ["a list of types", { type: ["string", "null"] }],
  ["alternatives", { anyOf: [{ $ref: "#/$defs/t" }, { type: "null" }] }],
  ["an enumeration", { enum: ["x", null] }],
])("null in %s is chosen, and not the same as what is not set", (_, schema) => {
  const { box, changes } = form(object({ a: schema }, { $defs: { t: object({}) } }), {});
  const check = box.querySelector<HTMLInputElement>("input[type=checkbox]");
  expect(check?.checked).toBe(false);
  act(() => check?.click());
  expect(changes).toEqual([{ a: null }]);
});

test("a new text of a list is empty", () => {
  const { box } = form(object({ a: { type: "array", items: { type: "string" } } }), { a: [null, "x\ny"] });
  expect([...box.querySelectorAll("textarea")].map(({ value }) => value)).toEqual(["", "x\ny"]);
});

test("another alternative keeps what fits, and has its own constant", () => {
  const choices = [kind("b"), kind("c")].map((one) => ({ ...one, properties: { ...one.properties, name: { type: "string" } } }));
  const { box, changes } = form(object({ a: { oneOf: choices } }), { a: { kind: "b", b: 1, name: "n" } });
  const select = box.querySelector<HTMLSelectElement>("#args_a__oneof_select");
  expect([...(select?.options ?? [])].map(({ text }) => text)).toEqual(["Not set", "b", "c"]);
  if (select !== null) select.value = "1";
  act(() => void select?.dispatchEvent(new Event("change", { bubbles: true })));
  expect(changes.at(-1)).toEqual({ a: { kind: "c", name: "n" } });
});

test("a list with a schema for each place has a field for each", () => {
  const { box, changes } = form(object({ a: { type: "array", prefixItems: [{ type: "string" }, { type: "integer" }], items: false } }), {});
  type(box.querySelector("#args_a_0"), "x");
  expect(changes).toEqual([{ a: ["x"] }]);
  expect(box.querySelector("input#args_a_1")).not.toBeNull();
});

test("a date with its time is sent as it is typed, with the offset that it has", () => {
  const { box, changes } = form(object({ a: { type: "string", format: "date-time" } }), { a: "2026-11-30T10:00:00+05:30" });
  expect(box.querySelector<HTMLInputElement>("#args_a")?.value).toContain("2026-11-30T10:00");
  type(box.querySelector("#args_a"), "2026-12-01T09:15");
  expect(changes).toEqual([{ a: "2026-12-01T09:15:00+05:30" }]);
});

test("a property of the name default stays", () => {
  const schema = object({ default: { type: "string", default: "x" } });
  expect(formSchema(schema).properties).toMatchObject({ default: { type: "string" } });
  expect(formSchema(schema).properties?.default).not.toHaveProperty("default");
});

test("a schema that says nothing takes entries of any kind, and what is typed stays while it is no JSON", () => {
  const { box, changes } = form({}, { a: "" });
  expect(box.querySelector("#args")?.tagName).not.toBe("TEXTAREA");
  const value = box.querySelector<HTMLTextAreaElement>("#args_a");
  for (const typed of ["[", "[1.10]"]) {
    type(value, typed);
    expect(value?.value).toBe(typed);
  }
  expect(writeExact(changes.at(-1))).toBe('{"a":[1.10]}');
});

test("several files are added to each other, each can be removed, and too many are refused", async () => {
  const files = { type: "array", items: { type: "string", contentEncoding: "base64" } };
  const { box, changes } = form(object({ a: files }), { a: ["eHg="] });
  const input = box.querySelector<HTMLInputElement>("#args_a");
  const choose = (chosen: File[]) => {
    Object.defineProperty(input, "files", { value: chosen, configurable: true });
    act(() => void input?.dispatchEvent(new Event("change", { bubbles: true })));
  };
  choose([new File(["hello"], "a.txt"), new File(["x"], "b.txt")]);
  await vi.waitFor(() => expect(changes).toEqual([{ a: ["eHg=", "aGVsbG8=", "eA=="] }]));
  act(() => box.querySelector<HTMLButtonElement>(".field-about button")?.click());
  expect(changes.at(-1)).toEqual({ a: ["aGVsbG8=", "eA=="] });
  choose([new File([new Uint8Array(2e6)], "c.bin"), new File([new Uint8Array(2e6)], "d.bin")]);
  expect(box.querySelector(".wrong")?.textContent).toBe("c.bin, d.bin: 4.1 MB in all, and a call may have 3 MB");
  expect(changes).toHaveLength(2);
});
