/** What the steps of a tool can choose from: tools, the arguments of each, and the answers of earlier steps. */

import { useQueries } from "@tanstack/react-query";
import { api, data, type Tool } from "../../api/client";
import { followed, isSchema, type Schema, typeOf } from "../../parts";
import { t } from "../../text";
import type { Recipe } from "./recipe";

const FEW = 25;
const PLAIN = ["string", "integer", "number", "boolean"] as const;
export type Chosen = { names: string[]; tools: Record<string, Tool> };

/** Return the tools that are chosen for the steps, and the names that fit what is typed. */
export function useStepTools(steps: NonNullable<Recipe["steps"]>): Chosen {
  const words = [...new Set(steps.map(({ tool = "" }) => tool.trim()))];
  const found = useQueries({
    queries: words.map((q) => ({
      queryKey: ["tools", "step", q],
      queryFn: () =>
        q === ""
          ? data(api.GET("/tools", { params: { query: { sort: "name" as const, recommendedPageSize: FEW } } }))
          : data(api.GET("/tools/search", { params: { query: { q, pageSize: FEW } } })),
    })),
  });
  const listed = new Map(found.flatMap((one) => one.data?.tools ?? []).map((one) => [one.name, one]));
  const known = useQueries({
    queries: words.flatMap((name) => {
      const one = listed.get(name);
      if (one === undefined) return [];
      const path = { bundleID: one.bundleID, toolSlug: one.slug, v: one.version };
      return {
        queryKey: ["tool", path],
        queryFn: () => data(api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}", { params: { path } })),
      };
    }),
  });
  const tools = known.flatMap((one) => (one.data === undefined ? [] : [[one.data.name, one.data] as const]));
  return { names: [...listed.keys()], tools: Object.fromEntries(tools) };
}

/** Return what the answer of a step can be taken by: the whole, and its parts where its tool names them. */
function answersOf(id: string, tool: Tool | undefined): string[] {
  const whole = `steps.${id}.value`;
  const parts = isSchema(tool?.outputSchema?.properties) ? Object.keys(tool.outputSchema.properties) : [];
  return [whole, ...parts.map((part) => `${whole}.${part}`)].map((one) => `\${${one}}`);
}

/** Return what stands for a value in each step: an argument of the whole, or the answer of a step before it. */
export function choicesOf({ arguments: given = [], steps = [] }: Recipe, { tools }: Chosen): string[][] {
  const names = given.flatMap(({ name }) => (name ? [`\${${name}}`] : []));
  const answers = steps.map(({ id = "", tool = "" }) => (id === "" ? [] : answersOf(id, tools[tool])));
  return [...steps, null].map((_, index) => [...answers.slice(0, index).toReversed().flat(), ...names]);
}

/** Return the part of the questions that depends on the tool of each step: its arguments by name. */
export function argumentQuestions(recipe: Recipe, chosen: Chosen): Schema[] {
  const choices = choicesOf(recipe, chosen);
  return (recipe.steps ?? []).flatMap(({ id = "", tool = "", args = {} }, index) => {
    const schema = chosen.tools[tool]?.argSchema;
    if (id === "" || schema === undefined) return [];
    const properties = isSchema(schema.properties) ? schema.properties : {};
    const isClosed = schema.additionalProperties === false && Object.keys(args).every((name) => name in properties);
    const questions = {
      required: schema.required ?? [],
      additionalProperties: isClosed ? false : { type: "string" },
      properties: Object.fromEntries(
        Object.entries(properties).map(([name, one]) => [name, question(name, followed(isSchema(one) ? one : {}, schema), schema, choices[index] ?? [])]),
      ),
    };
    const is = { required: ["id", "tool"], properties: { id: { const: id }, tool: { const: tool } } };
    // oxlint-disable-next-line unicorn/no-thenable -- a keyword of JSON Schema
    return { if: is, then: { properties: { args: questions } } };
  });
}

function question(name: string, schema: Schema, root: Schema, choices: string[]): Schema {
  const values = Array.isArray(schema.enum) ? schema.enum : schema.type === "boolean" ? [true, false] : [];
  const isPlain = PLAIN.some((one) => one === schema.type) && values.length === 0;
  return {
    type: "string",
    title: name,
    description: [isPlain ? t(`recipe.type.${schema.type as (typeof PLAIN)[number]}`) : typeOf(schema, root), schema.description].filter(Boolean).join(" · "),
    examples: [...values.map(String), ...choices],
  };
}
