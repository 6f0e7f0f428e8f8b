/** A schema as the form takes it: it fills in only what can have no other value, so defaults are only named. */

import type { RJSFSchema } from "@rjsf/utils";
import { type Key, t } from "../../text";
import { shownExact, writeExact } from "../exact";
import { followed, isSchema, type Schema } from "../SchemaTree";

// Keywords whose value is a map of names to schemas, and those that are schemas or lists of them.
const MAPS = new Set(["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"]);
const PARTS = new Set(["items", "prefixItems", "additionalItems", "additionalProperties", "oneOf", "anyOf", "allOf", "not", "if", "then", "else"]);
/** Every type; the first has no field of its own, so the form asks for JSON, or lets choose between alternatives. */
const ANY = ["any", "string", "number", "integer", "boolean", "array", "object", "null"];

/** Return the schema with its defaults in words, null apart (`takesNull`), and a name for each alternative. */
export function asForm(schema: unknown, root: Schema): Schema {
  if (!isSchema(schema)) return schema as Schema;
  if (Object.keys(schema).every((key) => key === "title" || key === "description" || key === "default")) {
    return described({ ...schema, type: ANY });
  }
  const parts = Object.entries(tupled(withoutNull(schema))).map(([key, part]) => {
    if (key === "additionalProperties" && (part === true || isSchema(part))) return [key, ofEntries(asForm(part === true ? {} : part, root))];
    if (Array.isArray(part)) return [key, PARTS.has(key) ? part.map((one) => asForm(one, root)) : part];
    if (PARTS.has(key)) return [key, asForm(part, root)];
    if (!MAPS.has(key)) return [key, part];
    return [key, Object.fromEntries(Object.entries(part as object).map(([name, one]) => [name, asForm(one, root)]))];
  });
  const made = Object.fromEntries(parts) as Schema;
  for (const word of ["oneOf", "anyOf"]) {
    if (Array.isArray(made[word])) made[word] = made[word].filter(isSchema).map((one) => named(one, schema, root));
  }
  if (made.const !== undefined) made.enum = [made.const];
  // The form fills constants in, also of what can be left out.
  for (const [name, one] of Object.entries((made.properties ?? {}) as Record<string, Schema>)) {
    if (!(made.required as string[] | undefined)?.includes(name)) delete one.const;
  }
  // By this format the form knows a file.
  if (made.contentEncoding === "base64" || made.format === "byte") Object.assign(made, { contentEncoding: "base64", format: "data-url" });
  return described(made);
}

function described({ default: value, ...made }: Schema): Schema {
  if (value === undefined) return made;
  return { ...made, description: [made.description, t("tool.default", { value: writeExact(value) })].filter(Boolean).join(" · ") };
}

/** The form takes only entries with a type for such as can have several. */
function ofEntries(schema: Schema): Schema {
  return "type" in schema || "$ref" in schema ? schema : { type: ANY, ...schema };
}

/** The form knows the older word for a list with a schema for each place. */
function tupled({ prefixItems, items, ...schema }: Schema): Schema {
  if (prefixItems === undefined) return items === undefined ? schema : { ...schema, items };
  return { ...schema, items: prefixItems, additionalItems: items ?? true };
}

const isNull = (one: unknown) => isSchema(one) && (one.type === "null" || one.const === null);

/** Take null out of types, values and alternatives; what is left of several types are alternatives. */
function withoutNull(schema: Schema): Schema {
  if (isNull(schema)) return { ...schema, type: undefined, enum: [null] };
  let made = schema;
  const { type, enum: values } = schema;
  if (Array.isArray(type)) {
    const types = type.filter((one) => one !== "null");
    const { title, description, default: value, ...rest } = schema;
    const outer = Object.fromEntries(Object.entries({ title, description, default: value }).filter(([, one]) => one !== undefined));
    const several = { ...outer, anyOf: types.map((one) => ({ ...rest, type: one })) };
    made = types.length === 1 || values !== undefined ? { ...schema, type: types.length === 1 ? types[0] : undefined } : several;
    if (types.length < type.length) made = { ...made, takesNull: true };
  }
  if (Array.isArray(values) && values.length > 1 && values.includes(null)) {
    made = { ...made, enum: values.filter((one) => one !== null), takesNull: true };
  }
  for (const word of ["oneOf", "anyOf"]) {
    const choices = made[word];
    if (!Array.isArray(choices) || !choices.some(isNull)) continue;
    const { [word]: _, ...rest } = made;
    const left = choices.filter((one) => !isNull(one));
    made = left.length === 1 ? { ...(left[0] as Schema), ...rest, takesNull: true } : { ...rest, [word]: left, takesNull: true };
  }
  return made;
}

/** Name an alternative: by the value that tells it from the others, its title, its definition, or its type. */
function named(choice: Schema, { discriminator }: Schema, root: Schema): Schema {
  const real = followed(choice, root);
  const { propertyName, mapping } = (discriminator ?? {}) as { propertyName?: string; mapping?: Record<string, string> };
  const properties = Object.entries((real.properties ?? {}) as Record<string, Schema>);
  const fixed = properties.flatMap(([name, one]) => {
    const only = "const" in one ? one.const : Array.isArray(one.enum) && one.enum.length === 1 ? one.enum[0] : undefined;
    return only === undefined || (propertyName ?? name) !== name ? [] : [shownExact(only)];
  });
  const mapped = Object.entries(mapping ?? {}).find(([, ref]) => ref === choice.$ref)?.[0];
  if (fixed.length === 0 && mapped !== undefined && propertyName !== undefined) {
    const rule = { properties: { [propertyName]: { const: mapped, enum: [mapped] } }, required: [propertyName] };
    return { title: mapped, allOf: [choice, rule] };
  }
  const definition = typeof choice.$ref === "string" ? choice.$ref.split("/").at(-1) : undefined;
  return { ...choice, title: fixed[0] ?? real.title ?? definition ?? typeName(real, root) };
}

/** Return the type of an alternative in words; one of an object has the names of what it must have. */
function typeName(schema: Schema, root: Schema): string {
  if ("const" in schema) return shownExact(schema.const);
  if (Array.isArray(schema.enum)) return schema.enum.map(shownExact).join(", ");
  const { type, items, required, format } = schema;
  const word = typeof type === "string" ? t(`recipe.type.${type}` as Key) : t("form.any");
  const inside = isSchema(items) ? [typeName(followed(items, root), root)] : (required ?? format ?? []);
  const details = [inside].flat().join(", ");
  return details === "" ? word : `${word} (${details})`;
}

/** Return the whole schema as the form takes it. */
export function formSchema(schema: Schema): RJSFSchema {
  // Its name and description stand above the form already.
  const { title: _, description: __, ...rest } = schema;
  const whole = Object.keys(rest).length === 0 ? { type: "object", additionalProperties: true } : rest;
  return JSON.parse(writeExact(asForm(whole, schema))) as RJSFSchema;
}
