/** A schema as the form takes it: it fills in only what can have no other value, so defaults are only named. */

import type { RJSFSchema } from "@rjsf/utils";
import { t } from "../../text";
import { writeExact } from "../exact";
import { type Schema, typeOf } from "../SchemaTree";

// Keywords whose value is a map of names to schemas, and those that are schemas or lists of them.
const MAPS = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
const PARTS = new Set(["items", "prefixItems", "additionalProperties", "oneOf", "anyOf", "allOf", "not", "if", "then", "else"]);

/** Return the schema with its defaults in words. */
export function withoutDefaults(schema: unknown): RJSFSchema {
  if (typeof schema !== "object" || schema === null) return schema as RJSFSchema;
  // One without keywords takes anything: the form leaves it out, and does not say so.
  const { default: value, ...rest } = Object.keys(schema).length === 0 ? { description: "" } : (schema as RJSFSchema);
  const parts = Object.entries(rest).map(([key, part]) => {
    if (Array.isArray(part)) return [key, PARTS.has(key) ? part.map(withoutDefaults) : part];
    if (PARTS.has(key)) return [key, withoutDefaults(part)];
    if (!MAPS.has(key)) return [key, part];
    return [key, Object.fromEntries(Object.entries(part as object).map(([name, one]) => [name, withoutDefaults(one)]))];
  });
  const made = Object.fromEntries(parts) as RJSFSchema;
  for (const choice of [...(made.oneOf ?? []), ...(made.anyOf ?? [])] as RJSFSchema[]) {
    if (!("const" in choice || "$ref" in choice)) choice.title ??= typeOf(choice as Schema, choice as Schema);
  }
  if (made.const !== undefined) made.enum = [made.const];
  // By this format the form knows a file.
  if (made.contentEncoding === "base64") made.format = "data-url";
  if (value === undefined) return made;
  const named = t("tool.default", { value: writeExact(value) });
  return { ...made, description: [made.description, named].filter(Boolean).join(" · ") };
}
