/** Validation by JSON Schema without code made at run time, which the page's policy forbids; the errors in plain words. */

import { type OutputUnit, type Schema as Rule, Validator } from "@cfworker/json-schema";
import { ERRORS_KEY, type ErrorSchema, type RJSFSchema, type ValidatorType } from "@rjsf/utils";
import { has, type Key, t } from "../../text";
import { readExact, shownExact, writeExact } from "../exact";
import { followed, type Schema } from "../SchemaTree";

/** What is wrong with a part of a value. */
export type Problem = { path: string[]; message: string; keyword: string };
/** One of the server, whose path is such as `$.a[0]`. */
export type Refused = { path: string; message: string };

// Errors of a whole that only repeat those of its parts.
const WHOLES = new Set(["properties", "items", "prefixItems", "$ref", "allOf", "if", "additionalProperties", "patternProperties"]);
/** Inside of these stands why a part does not fit, which the message about the whole says. */
const INSIDE = /\/(propertyNames|contains|not)\//;
const SAME: Record<string, string> = { const: "enum", minProperties: "minItems", maxProperties: "maxItems", oneOf: "anyOf" };
const CHOICES = new Set(["anyOf", "oneOf"]);
const OTHER_KIND = new Set(["type", "const", "enum"]);
const LIKE: Record<string, string> = {
  date: "2026-11-30",
  "date-time": "2026-11-30T17:30:00+01:00",
  time: "17:30:00Z",
  email: "name@example.com",
  uri: "https://example.com/page",
  uuid: "0190b7a2-5c5e-7b1c-9d3e-5f6a7b8c9d0e",
};

function found(schema: RJSFSchema, value: unknown): OutputUnit[] {
  const { errors } = new Validator(schema as Rule, "2020-12", false).validate(JSON.parse(writeExact(value ?? null)));
  // An error about what may not be there says the place of the value only; its keyword is that of the error before.
  return errors.map((one, at) => (one.keyword === "false" ? { ...one, keywordLocation: errors[at - 1]?.keywordLocation ?? "#" } : one));
}

const partsOf = (location: string) =>
  location
    .split("/")
    .slice(1)
    .map((part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"));

// Another constant is another alternative.
const far = (units: OutputUnit[]) => units.filter(({ keyword }) => keyword === "const" || keyword === "enum").length * 100 + units.length;

/** Return the errors without those of alternatives but the one that comes nearest; none is near if all are of another kind. */
function nearest(units: OutputUnit[]): OutputUnit[] {
  const at = units.findIndex(({ keyword }) => CHOICES.has(keyword));
  const whole = units[at];
  if (whole === undefined) return units;
  const isInside = (one: OutputUnit) =>
    one.keywordLocation.startsWith(`${whole.keywordLocation}/`) && `${one.instanceLocation}/`.startsWith(`${whole.instanceLocation}/`);
  const inside = units.slice(at + 1).filter(isInside);
  const rest = [...units.slice(0, at), ...nearest(units.slice(at + 1).filter((one) => !isInside(one)))];
  const indexOf = (one: OutputUnit) => one.keywordLocation.slice(whole.keywordLocation.length + 1).split("/")[0];
  const groups = [...new Set(inside.map(indexOf))].map((index) => inside.filter((one) => indexOf(one) === index));
  const near = groups.filter((one) => !one.some((unit) => OTHER_KIND.has(unit.keyword) && unit.instanceLocation === whole.instanceLocation));
  const best = near.toSorted((one, other) => far(one) - far(other))[0];
  return [...rest, ...(best === undefined ? [whole] : nearest(best))];
}

/** Return the value of the keyword that an error names. */
function limitOf(root: Schema, location: string): unknown {
  let at: unknown = root;
  for (const part of partsOf(location)) at = part === "$ref" ? followed(at as Schema, root) : (at as Schema | undefined)?.[part];
  return at;
}

function messageOf({ keyword, error }: OutputUnit, limit: unknown): string {
  const list = [limit ?? []].flat();
  if (keyword === "type") return t("form.wrong.type", { value: list.map((one) => t(`recipe.type.${one}` as Key)).join(", ") });
  if (keyword === "format") return t("form.wrong.format", { value: LIKE[String(limit)] ?? String(limit) });
  if (keyword === "oneOf" && !error.includes("(0 ")) return t("form.wrong.several");
  const key = `form.wrong.${SAME[keyword] ?? keyword}`;
  const values = { n: Number(limit), value: list.map(shownExact).join(", "), name: /"(.*)"/.exec(error)?.[1] ?? "" };
  return t(has(key) ? key : "form.wrong.other", values);
}

/** Return all that is wrong with a value by its schema. */
export function problemsOf(schema: Schema, value: unknown): Problem[] {
  // One that the server takes but this validator cannot read is left to the server.
  let units: OutputUnit[] = [];
  try {
    units = found(JSON.parse(writeExact(schema)), value);
  } catch {}
  return nearest(units)
    .filter(({ keyword, keywordLocation }) => !WHOLES.has(keyword) && !INSIDE.test(keywordLocation))
    .map((unit) => {
      const missing = unit.keyword === "required" ? [/property "(.*)"/.exec(unit.error)?.[1] ?? ""] : [];
      const message = messageOf(unit, limitOf(schema, unit.keywordLocation));
      return { path: [...partsOf(unit.instanceLocation), ...missing], message, keyword: unit.keyword };
    });
}

/** Return what the server found wrong. */
export function problemsIn(refused: Refused[]): Problem[] {
  return refused.map(({ path, message }) => {
    const parts = [...path.matchAll(/\.([^.[]+)|\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]/g)];
    return { path: parts.map(([, name, index, text]) => name ?? index ?? String(readExact(text ?? '""'))), message, keyword: "" };
  });
}

/** Return problems at the fields of a form. */
export function errorsOf(problems: Problem[]): ErrorSchema {
  const root: ErrorSchema = {};
  for (const { path, message } of problems) {
    let at = root;
    for (const part of path) at = (at[part] ??= {} as never) as ErrorSchema;
    at[ERRORS_KEY] = [...new Set([...(at[ERRORS_KEY] ?? []), message])];
  }
  return root;
}

/** What the form asks to choose between alternatives; all that is shown of errors is `problemsOf`. */
export const validator: ValidatorType = {
  validateFormData: () => ({ errors: [], errorSchema: {} }),
  rawValidation: () => ({ errors: [] }),
  isValid(schema, value, root) {
    try {
      // The form resolves references against the whole schema, whose definitions the part may name.
      return found({ definitions: root.definitions ?? {}, $defs: root.$defs ?? {}, ...schema }, value).length === 0;
    } catch {
      return false;
    }
  },
};
