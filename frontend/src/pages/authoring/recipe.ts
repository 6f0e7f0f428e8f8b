/** What the guided form asks about a tool, and the manifest that it makes of the answers. */

import { type Grant, valuesOf } from "../../parts/Watched";

export const KINDS = ["http", "command", "composite"] as const;
export type Kind = (typeof KINDS)[number];

type Argument = { name?: string; type?: string; description?: string; required?: boolean };
type Step = { id?: string; tool?: string; args?: Record<string, string> };
export type Recipe = {
  name?: string;
  description?: string;
  arguments?: Argument[];
  answer?: string;
  method?: string;
  address?: string;
  query?: Record<string, string>;
  headers?: Record<string, string>;
  body?: Record<string, string>;
  part?: string;
  program?: string;
  words?: string[];
  read?: string[];
  write?: string[];
  hosts?: string[];
  env?: string[];
  steps?: Step[];
  output?: string;
};

export const STARTS: Record<Kind, Recipe> = {
  http: { name: "", description: "", arguments: [{ name: "", type: "string", required: true }], method: "GET", address: "https://", answer: "json" },
  command: { name: "", description: "", arguments: [{ name: "", type: "string", required: true }], program: "", words: [""], answer: "text" },
  composite: { name: "", description: "", arguments: [{ name: "", type: "string", required: true }], steps: [{ id: "first" }, { id: "second" }] },
};

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

/** Return the names in capitals that a request uses and that are no arguments: its secrets. */
function secretsOf(block: object, given: Argument[]): string[] {
  const used = [...JSON.stringify(block).matchAll(PLACEHOLDER)].map(([, name = ""]) => name);
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

const values = (map: Record<string, string> = {}) => Object.fromEntries(Object.entries(map).map(([key, text]) => [key, valueOf(text)]));

function http(recipe: Recipe): Record<string, unknown> {
  const { method = "GET", address = "", query, headers, part, arguments: given = [] } = recipe;
  const block = filled({
    method,
    url: address,
    query,
    headers,
    body: values(recipe.body),
    response: filled({ [part?.startsWith("$") ? "jsonpath" : "json_path"]: part }),
  });
  const host = /^https?:\/\/([^/?#]+)/.exec(address)?.[1];
  const secrets = Object.fromEntries(secretsOf(block, given).map((name) => [name, { type: "string", required: true }]));
  return { exec: { http: block }, permissions: filled({ network: host === undefined || { allow: [host] }, secrets }) };
}

/** Return the answers of a command that grant exactly this. */
export function grantedIn(grants: Grant[]): Recipe {
  const [read, write, hosts, env] = (["fs.read", "fs.write", "network.allow", "env"] as const).map((one) => valuesOf(grants, one));
  return { read, write, hosts, env };
}

const some = (list: string[]) => list.filter((one) => one !== "");

function command({ program = "", words = [], read = [], write = [], hosts = [], env = [] }: Recipe): Record<string, unknown> {
  const block = filled({ entrypoint: program, args: words.filter((one) => one !== undefined && one !== null) });
  const allow = some(hosts);
  const permissions = filled({
    network: allow.length > 0 ? { allow } : undefined,
    fs: filled({ read: some(read), write: some(write) }),
    env: some(env),
  });
  return { exec: { command: block }, ...filled({ permissions }) };
}

type Tools = Record<string, { argSchema: Record<string, unknown> }>;

function composite({ steps = [], output }: Recipe, tools: Tools): Record<string, unknown> {
  const made = steps.map(({ id, tool = "", args = {} }) => {
    const takes = (tools[tool]?.argSchema.properties ?? {}) as Record<string, { type?: unknown }>;
    const given = Object.entries(args).map(([name, text]) => [name, takes[name]?.type === "string" ? text : valueOf(text)]);
    return filled({ id, tool, args: Object.fromEntries(given) });
  });
  return { exec: { composite: filled({ steps: made, output }) } };
}

const MAKE: Record<Kind, (recipe: Recipe, tools: Tools) => Record<string, unknown>> = { http, command, composite };

/** Return the manifest of a recipe whose steps call these tools; where an answer lacks, the server says so. */
export function manifestOf(kind: Kind, recipe: Recipe, tools: Tools = {}): Record<string, unknown> {
  const { name = "", description = "", answer } = recipe;
  return {
    name,
    description,
    kind,
    version: 1,
    inputs: { schema: schemaOf(recipe.arguments ?? []) },
    ...(answer === "text" ? { outputs: { format: "text" } } : {}),
    ...MAKE[kind](recipe, tools),
  };
}
