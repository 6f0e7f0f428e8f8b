/** What the guided form asks about a tool, the manifest that it makes of the answers, and the answers that a manifest has. */

import { isSchema, type Schema } from "../../parts";

export const KINDS = ["http", "command", "composite"] as const;
export type Kind = (typeof KINDS)[number];

type Argument = { name?: string; type?: string; description?: string; required?: boolean };
type Step = { id?: string; tool?: string; args?: Record<string, string> };
type StepMade = { id: string; tool: string; args?: Schema };
type Some<Name extends string, Answer> = Partial<Record<Name, Answer>>;
export type Recipe = Some<"name" | "description" | "answer" | "method" | "address" | "part" | "program" | "output", string> &
  Some<"query" | "headers" | "body", Record<string, string>> &
  Some<"words" | "read" | "write" | "hosts" | "env" | "secrets", string[]> & {
    arguments?: Argument[];
    steps?: Step[];
    /** Not asked about. */
    version?: string | number;
    examples?: { params?: object }[];
  };
export type Tools = Record<string, { argSchema: Schema }>;

const ARGUMENT: Argument = { name: "", type: "string", required: true };
export const STARTS: Record<Kind, Recipe> = {
  http: { name: "", description: "", arguments: [ARGUMENT], method: "GET", address: "https://", answer: "json" },
  command: { name: "", description: "", arguments: [ARGUMENT], program: "", words: [], answer: "text" },
  composite: { name: "", description: "", arguments: [ARGUMENT], steps: [{ id: "first" }, { id: "second" }] },
};

/** Return a recipe in which an added argument is a text that is required, as the first one. */
export function begun(recipe: Recipe): Recipe {
  return { ...recipe, arguments: recipe.arguments?.map((one) => (Object.keys(filled(one)).length === 0 ? ARGUMENT : one)) };
}

/** How an answer is written at its place in the manifest, and how it is read there. */
type Way<Answer, Value> = {
  to: (answer: Answer | undefined, recipe: Recipe, tools: Tools) => unknown;
  from: (value: Value | undefined, manifest: Schema) => Answer | undefined;
};
type Place = { answer: keyof Recipe; path: string } & Way<unknown, unknown>;

function place<Answer, Value = Answer>(answer: keyof Recipe, path: string, way?: Way<Answer, Value>): Place {
  return { answer, path, ...((way ?? { to: (one) => one, from: (one) => one }) as Way<unknown, unknown>) };
}

/** Return the entries that are filled in; an added one is null at first. */
const some = (given: string[] = []) => given.filter(Boolean);
const nonEmpty = (given: string[] = []) => (given.length === 0 ? undefined : given);
const declared = (names: string[]) => Object.fromEntries(names.map((name) => [name, { type: "string", required: true }]));

const list: Way<string[], string[]> = { to: some, from: (found) => found };
const texts: Way<Record<string, string>, Schema> = {
  to: (map = {}) => Object.fromEntries(Object.entries(map).map(([key, text]) => [key, valueOf(text)])),
  from: (found) => found && textsOf(found),
};
const answer = place<string, string>("answer", "outputs.format", { to: (one) => (one === "text" ? one : undefined), from: (one = "json") => one });

/** Where each answer is in the manifest; its name, description and version are at its top. */
const PLACES: Record<Kind, Place[]> = {
  http: [
    answer,
    place("address", "exec.http.url"),
    place("method", "exec.http.method"),
    place("query", "exec.http.query"),
    place("headers", "exec.http.headers"),
    place("body", "exec.http.body", texts),
    place<string, Record<string, string>>("part", "exec.http.response", {
      to: (path) => path && { [path.startsWith("$") ? "jsonpath" : "json_path"]: path },
      from: (found) => found?.jsonpath ?? found?.json_path,
    }),
    place<string[], { allow?: string[] }>("hosts", "permissions.network", {
      to: (hosts, { address }) => hostOf(address) === undefined || { allow: [hostOf(address), ...some(hosts)] },
      from: (found, manifest) => nonEmpty(found?.allow?.filter((one) => one !== hostOf(at(manifest, "exec.http.url") as string))),
    }),
    place<string[], Schema>("secrets", "permissions.secrets", { to: (_, recipe) => declared(secretsOf(recipe)), from: () => undefined }),
  ],
  command: [
    answer,
    place("program", "exec.command.entrypoint"),
    place("words", "exec.command.args", list),
    place("hosts", "permissions.network.allow", list),
    place("read", "permissions.fs.read", list),
    place("write", "permissions.fs.write", list),
    place("env", "permissions.env", list),
    place<string[], Schema>("secrets", "permissions.secrets", { to: (names) => declared(some(names)), from: (found) => found && Object.keys(found) }),
  ],
  composite: [
    place<Step[], StepMade[]>("steps", "exec.composite.steps", {
      to: (given = [], _, tools) => given.map((step) => filled({ ...step, args: argumentsTo(step, tools) })),
      from: (made) => made?.map(({ id, tool, args = {} }) => ({ id, tool, args: textsOf(args) })),
    }),
    place("output", "exec.composite.output"),
  ],
};

/** Return the manifest of a recipe whose steps call these tools; where an answer lacks, the server says so. */
export function manifestOf(kind: Kind, recipe: Recipe, tools: Tools = {}): Schema {
  const { name = "", description = "", version = 1, arguments: given = [] } = recipe;
  const made: Schema = { name, description, kind, version, inputs: { schema: schemaOf(given) }, exec: { [kind]: {} } };
  for (const { answer: one, path, to } of PLACES[kind]) put(made, path, to(recipe[one], recipe, tools));
  return { ...made, ...filled({ examples: examplesOf(recipe) }) };
}

/** Return the answers that make a manifest without errors, or the names in it that no question asks about. */
export function answersOf(manifest: Schema): { kind: Kind; recipe: Recipe } | { lacks: string[] } {
  const kind = KINDS.find((one) => one === manifest.kind);
  if (kind === undefined) return { lacks: ["kind"] };
  const { name, description, version, examples } = manifest as Recipe;
  const read = PLACES[kind].map(({ answer: one, path, from }) => [one, from(at(manifest, path), manifest)] as const);
  const given = argumentsOf((at(manifest, "inputs.schema") ?? {}) as Schema);
  const all = { name, description, version, examples, arguments: given, ...Object.fromEntries(read) };
  const recipe: Recipe = Object.fromEntries(Object.entries(all).filter(([, one]) => one !== undefined));
  const made = manifestOf(kind, recipe, textTools(at(manifest, "exec.composite.steps") as StepMade[] | undefined));
  // Without hosts there is no network, and a manifest may say so.
  const lacks = differences(manifest, made).filter((one) => one !== "network" || at(manifest, "permissions.network") !== false);
  return lacks.length === 0 ? { kind, recipe } : { lacks: [...new Set(lacks)] };
}

const DEEP = ["query", "headers", "body", "words", "steps"];

/** Return the answer to which a place in the manifest belongs, as `$.a[0]`, or "" for none. */
export function questionAt(where: string, kind: Kind, { arguments: given = [] }: Recipe): string {
  const [, name = ""] = /^\$\.inputs\.schema\.properties(?:\.(\w+)|\["(.*?)"\])/.exec(where) ?? [];
  if (name !== "") return `$.arguments[${given.findIndex((one) => one.name === name)}]`;
  // A request may reach the host of its address first.
  if (kind === "http" && /^\$\.permissions\.(network\.allow\[0\]|secrets)/.test(where)) return "$.address";
  // What lacks is at the part that lacks it.
  const found = PLACES[kind].find(({ path }) => where.startsWith(`$.${path}`) || (where === `$.exec.${kind}` && path.startsWith("exec")));
  if (found === undefined) return /^\$\.(name|description)$/.test(where) ? where : "";
  const rest = where.slice(found.path.length + 2);
  return `$.${found.answer}${DEEP.includes(found.answer) ? rest : ""}`;
}

/** Return the host of an address. */
function hostOf(address = ""): string | undefined {
  return /^https?:\/\/([^/?#]+)/.exec(address)?.[1];
}

const PLACEHOLDER = /\$\{([A-Za-z_]\w*)[^}]*\}/g;
const LISTS: Record<string, object> = { list: { type: "array", items: { type: "string" } } };

function schemaOf(given: Argument[]): Record<string, unknown> {
  const named = given.filter(({ name }) => name);
  const required = named.filter((one) => one.required).map(({ name }) => name);
  return {
    type: "object",
    additionalProperties: false,
    ...(required.length > 0 ? { required } : {}),
    properties: Object.fromEntries(
      named.map(({ name, type = "string", description }) => [
        name,
        { ...(LISTS[type] ?? { type }), ...(description ? { description } : {}) },
      ]),
    ),
  };
}

/** Return the arguments in a schema that `schemaOf` could have made. */
function argumentsOf({ properties = {}, required = [] }: Schema): Argument[] {
  return Object.entries(properties as Record<string, Schema>).map(([name, { type, description }]) => ({
    name,
    type: type === "array" ? "list" : String(type),
    ...(filled({ description, required: (required as string[]).includes(name) || undefined }) as Argument),
  }));
}

/** Return the examples that still fit the arguments. */
function examplesOf({ examples = [], arguments: given = [] }: Recipe): object[] {
  return examples.filter(({ params = {} }) => {
    const named = Object.keys(params);
    return named.every((one) => given.some(({ name }) => name === one)) && given.every(({ name = "", required }) => !required || named.includes(name));
  });
}

/** Return the names in capitals that a request uses and that are no arguments: its secrets. */
function secretsOf({ address, query, headers, body, arguments: given = [] }: Recipe): string[] {
  const used = [...JSON.stringify([address, query, headers, body]).matchAll(PLACEHOLDER)].map(([, name = ""]) => name);
  return [...new Set(used)].filter((name) => /^[A-Z]/.test(name) && !given.some((one) => one.name === name));
}

/** Return a text as the value that it means to a tool that takes more than text: a number or list as JSON has it. */
function valueOf(text: string): unknown {
  try {
    return /^(true|false|-?\d.*|[[{][^]*)$/.test(text) ? JSON.parse(text) : text;
  } catch {
    return text;
  }
}

/** Return the answers that were given. */
function filled(part: Record<string, unknown>): Record<string, unknown> {
  const nothing: unknown[] = [undefined, '""', "{}", "[]"];
  return Object.fromEntries(Object.entries(part).filter(([, one]) => !nothing.includes(JSON.stringify(one))));
}

/** Return values as one types them. */
function textsOf(values: Schema): Record<string, string> {
  return Object.fromEntries(Object.entries(values).map(([name, one]) => [name, typeof one === "string" ? one : JSON.stringify(one)]));
}

function argumentsTo({ tool = "", args = {} }: Step, tools: Tools): Schema {
  const takes = (tools[tool]?.argSchema.properties ?? {}) as Record<string, Schema>;
  return Object.fromEntries(Object.entries(args).map(([name, text]) => [name, takes[name]?.type === "string" ? text : valueOf(text)]));
}

/** Return tools for which the texts among the arguments of these steps are texts. */
function textTools(made: StepMade[] = []): Tools {
  return Object.fromEntries(
    made.map(({ tool, args = {} }) => {
      const properties = Object.fromEntries(Object.keys(args).map((name) => [name, { type: typeof args[name] }]));
      return [tool, { argSchema: { properties } }];
    }),
  );
}

function at(value: Schema, path: string): unknown {
  return path.split(".").reduce<unknown>((found, name) => (isSchema(found) ? found[name] : undefined), value);
}

/** Put an answer into a manifest, if it was given. */
function put(into: Schema, path: string, value: unknown): void {
  const [name = "", ...rest] = path.split(".");
  const part = (into[name] ?? {}) as Schema;
  if (rest.length > 0) put(part, rest.join("."), value);
  Object.assign(into, filled({ [name]: rest.length > 0 ? part : value }));
}

/** Return the names at which two values differ; the order of what is required does not matter. */
function differences(one: unknown, other: unknown, name = ""): string[] {
  if (![one, other].some(isObject)) return one === other ? [] : [name];
  const parts = [one, other].map((value) => (name === "required" && Array.isArray(value) ? value.toSorted() : (value ?? {})) as Schema);
  if (!parts.every(isObject)) return [name];
  const names = new Set(parts.flatMap((part) => Object.keys(part)));
  return [...names].flatMap((key) => differences(parts[0]?.[key], parts[1]?.[key], Array.isArray(one) ? name : key));
}

const isObject = (value: unknown) => typeof value === "object" && value !== null;
