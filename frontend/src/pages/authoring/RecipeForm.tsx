import { useQuery } from "@tanstack/react-query";
import { lazy, Suspense, useMemo } from "react";
import { api, data } from "../../api/client";
import { Loading } from "../../parts/states";
import { type Key, t } from "../../text";
import type { Kind, Recipe } from "./recipe";

const SchemaForm = lazy(() => import("../../parts/SchemaForm/SchemaForm"));
const TOOLS = 256;

const field = (name: string, more: object = {}) => ({
  type: "string",
  title: t(`recipe.${name}` as Key),
  description: t(`recipe.${name}.about` as Key),
  ...more,
});
const list = (name: string) => field(name, { type: "array", items: { type: "string" } });
const map = (name: string) => field(name, { type: "object", additionalProperties: { type: "string" } });
const choice = (values: readonly string[], label: (value: string) => string) => ({
  oneOf: values.map((value) => ({ const: value, title: label(value) })),
});

/** Return the questions about a tool as a JSON Schema, in the language of the page. */
function questions(kind: Kind, tools: string[]): Record<string, unknown> {
  const argument = {
    title: t("recipe.argument"),
    type: "object",
    required: ["name"],
    properties: {
      name: { type: "string", title: t("recipe.argument.name") },
      type: {
        type: "string",
        title: t("recipe.argument.type"),
        ...choice(["string", "integer", "number", "boolean", "list"], (one) => t(`recipe.type.${one}` as Key)),
      },
      description: { type: "string", title: t("recipe.argument.description") },
      required: { type: "boolean", title: t("recipe.argument.required") },
    },
  };
  const common = {
    name: field("name"),
    description: field("description"),
    arguments: field("arguments", { type: "array", items: argument }),
  };
  const answer = field("answer", choice(["json", "text"], (one) => t(`recipe.answer.${one}` as Key)));
  const own = {
    http: {
      method: field("method", { enum: ["GET", "POST", "PUT", "PATCH", "DELETE"] }),
      address: field("address"),
      query: map("query"),
      headers: map("headers"),
      body: map("body"),
      part: field("part"),
      answer,
    },
    command: {
      program: field("program"),
      words: list("words"),
      answer,
      read: list("read"),
      write: list("write"),
      hosts: list("hosts"),
      env: list("env"),
    },
    composite: {
      steps: field("steps", {
        type: "array",
        items: {
          title: t("recipe.step"),
          type: "object",
          required: ["id", "tool"],
          properties: {
            id: { type: "string", title: t("recipe.step.id") },
            tool: { type: "string", title: t("recipe.step.tool"), examples: tools },
            args: map("args"),
          },
        },
      }),
      output: field("output"),
    },
  };
  return { type: "object", required: ["name", "description"], properties: { ...common, ...own[kind] } };
}

/** Return the names of the arguments that a tool needs, of its entry in MCP's form. */
function neededBy({ inputSchema = {} }: { inputSchema?: { required?: string[] } }): string[] {
  return inputSchema.required ?? [];
}

type Props = { kind: Kind; recipe: Recipe; onChange: (recipe: Recipe) => void };

/** Questions about a tool for a person who writes no YAML. */
export function RecipeForm({ kind, recipe, onChange }: Props) {
  const tools = useQuery({
    queryKey: ["tools", "names"],
    queryFn: () => data(api.GET("/tools", { params: { query: { sort: "name", recommendedPageSize: TOOLS, for: "mcp" } } })),
    select: (page) => new Map(page.tools.map(({ name, entry }) => [name, neededBy(entry ?? {})])),
    enabled: kind === "composite",
  });
  const schema = useMemo(() => questions(kind, [...(tools.data?.keys() ?? [])]), [kind, tools.data]);
  // A step whose tool was just named gets a line for each argument that the tool needs.
  const withArguments = (next: Recipe): Recipe => ({
    ...next,
    steps: next.steps?.map((step, index) => {
      const needed = tools.data?.get(step.tool ?? "");
      const isNew = recipe.steps?.[index]?.tool !== step.tool && Object.values(step.args ?? {}).every((one) => !one);
      return needed === undefined || !isNew ? step : { ...step, args: Object.fromEntries(needed.map((name) => [name, ""])) };
    }),
  });
  return (
    <Suspense fallback={<Loading />}>
      <SchemaForm key={kind} schema={schema} value={recipe} refused={[]} onChange={(value) => onChange(withArguments(value as Recipe))} />
    </Suspense>
  );
}
