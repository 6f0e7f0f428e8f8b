/** Validation of a form by JSON Schema without code made at run time, which the page's policy forbids. */

import { type OutputUnit, Validator } from "@cfworker/json-schema";
import { type RJSFSchema, type RJSFValidationError, toErrorSchema, type ValidatorType } from "@rjsf/utils";
import { writeExact } from "../exact";

type Violation = { path: string; message: string };

// Errors of a whole that only repeat those of its parts.
const WHOLES = new Set(["properties", "items", "prefixItems", "$ref", "allOf", "additionalProperties", "patternProperties"]);

function found(schema: RJSFSchema, value: unknown, root: RJSFSchema): OutputUnit[] {
  // The form resolves references against the whole schema, whose definitions the part may name.
  const definitions = { definitions: root.definitions, $defs: root.$defs };
  const whole = Object.fromEntries(Object.entries({ ...definitions, ...schema }).filter(([, one]) => one !== undefined));
  return new Validator(whole, "2020-12", false).validate(JSON.parse(writeExact(value ?? null))).errors;
}

/** Return the path of a place as the form names it: `#/a/0` is `.a.0`. */
function propertyOf({ keyword, instanceLocation, error }: OutputUnit): string {
  const path = instanceLocation
    .slice(1)
    .split("/")
    .map((part) => decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~"))
    .join(".");
  const missing = keyword === "required" ? /property "(.*)"/.exec(error)?.[1] : undefined;
  return missing === undefined ? path : `${path}.${missing}`;
}

function asErrors(units: OutputUnit[]): RJSFValidationError[] {
  return units
    .filter(({ keyword, error }) => !WHOLES.has(keyword) || / does not match additional/.test(error))
    .map((unit) => {
      const property = propertyOf(unit);
      return { name: unit.keyword, property, message: unit.error, stack: `${property} ${unit.error}` };
    });
}

export const validator: ValidatorType = {
  validateFormData(value, schema) {
    const errors = asErrors(found(schema, value, schema));
    return { errors, errorSchema: toErrorSchema(errors) };
  },
  isValid(schema, value, root) {
    try {
      return found(schema, value, root).length === 0;
    } catch {
      return false;
    }
  },
  rawValidation<Result>(schema: RJSFSchema, value?: unknown) {
    return { errors: found(schema, value, schema) as Result[] };
  },
};

/** Return the violations that the server found as the form shows them: `$.a[0]` is `.a.0`. */
export function errorsOf(violations: Violation[]) {
  return toErrorSchema(
    violations.map(({ path, message }) => {
      const property = path.replace(/^\$/, "").replace(/\[(\d+)\]/g, ".$1").replace(/\["([^"]*)"\]/g, ".$1");
      return { name: "server", property, message, stack: message };
    }),
  );
}
