/** A JSON Schema as a person reads it: names, types, what is required, and what each part means. */

import { shownExact, writeExact } from "./exact";
import { t } from "../text";

export type Schema = Record<string, unknown>;

const DEEPEST = 8;

export function isSchema(value: unknown): value is Schema {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** Return the schema that a local reference names; another one stays as it is. */
export function followed(schema: Schema, root: Schema): Schema {
  const ref = schema.$ref;
  if (typeof ref !== "string" || !ref.startsWith("#/")) return schema;
  let found: unknown = root;
  for (const part of ref.slice(2).split("/")) {
    found = isSchema(found) ? found[decodeURIComponent(part).replaceAll("~1", "/").replaceAll("~0", "~")] : undefined;
  }
  return isSchema(found) ? { ...found, ...schema, $ref: undefined } : schema;
}

/** Return the type of a schema in a few words, such as `string[]` or `"a" | "b"`. */
export function typeOf(schema: Schema, root: Schema): string {
  if (Array.isArray(schema.enum)) return schema.enum.map((one) => writeExact(one)).join(" | ");
  if ("const" in schema) return writeExact(schema.const);
  const choices = choicesOf(schema);
  if (choices.length > 0) return choices.map((one) => typeOf(followed(one, root), root)).join(" | ");
  const type = Array.isArray(schema.type) ? schema.type.join(" | ") : String(schema.type ?? "any");
  if (type === "array" && isSchema(schema.items)) {
    const items = typeOf(followed(schema.items, root), root);
    return items.includes(" | ") ? `(${items})[]` : `${items}[]`;
  }
  return typeof schema.format === "string" ? `${type} (${schema.format})` : type;
}

function choicesOf(schema: Schema): Schema[] {
  const found = schema.oneOf ?? schema.anyOf;
  return Array.isArray(found) ? found.filter(isSchema) : [];
}

const LIMITS = ["minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems", "pattern"] as const;

type TreeProps = { schema: Schema; none: string; root?: Schema; depth?: number };

/** The properties of a schema, and theirs below them. */
export function SchemaTree({ schema, none, root = schema, depth = 0 }: TreeProps) {
  const properties = isSchema(schema.properties) ? Object.entries(schema.properties) : [];
  const required = Array.isArray(schema.required) ? schema.required : [];
  if (properties.length === 0) return depth === 0 ? <p className="muted">{isEmpty(schema) ? none : typeOf(schema, root)}</p> : null;
  return (
    <ul className="tree">
      {properties.map(([name, value]) => {
        const part = followed(isSchema(value) ? value : {}, root);
        const below = [part, ...(isSchema(part.items) ? [part.items] : []), ...choicesOf(part)];
        return (
          <li key={name}>
            <p className="line">
              <code className="tree-name">{name}</code>
              <span className="tree-type">{typeOf(part, root)}</span>
              {required.includes(name) && <em>{t("tool.required")}</em>}
              {"default" in part && <em>{t("tool.default", { value: writeExact(part.default) })}</em>}
              {LIMITS.map((limit) => part[limit] !== undefined && <em key={limit}>{`${limit} ${shownExact(part[limit])}`}</em>)}
            </p>
            {typeof part.description === "string" && <p className="muted">{part.description}</p>}
            {depth < DEEPEST &&
              below.map((one, index) => (
                <SchemaTree key={index} schema={followed(one, root)} none="" root={root} depth={depth + 1} />
              ))}
          </li>
        );
      })}
    </ul>
  );
}

function isEmpty(schema: Schema): boolean {
  return schema.type === undefined || schema.type === "object";
}
