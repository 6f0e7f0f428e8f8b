import { lazy, Suspense } from "react";
import { Loading } from "../../parts";
import { type Key, t } from "../../text";
import { begun, type Kind, type Recipe } from "./recipe";
import { argumentQuestions, choicesOf, type Chosen } from "./steps";

const SchemaForm = lazy(() => import("../../parts/SchemaForm/SchemaForm"));

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
function questions(kind: Kind, recipe: Recipe, chosen: Chosen): Record<string, unknown> {
  const argument = {
    title: t("recipe.argument"),
    type: "object",
    required: ["name"],
    properties: {
      name: { type: "string", title: t("tools.sort.name") },
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
      hosts: { ...list("hosts"), description: t("recipe.hosts.more") },
    },
    command: {
      program: field("program"),
      words: list("words"),
      secrets: list("secrets"),
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
            tool: field("tool", { examples: chosen.names }),
            args: map("args"),
          },
          allOf: argumentQuestions(recipe, chosen),
        },
      }),
      output: field("output", { examples: choicesOf(recipe, chosen).at(-1) }),
    },
  };
  return { type: "object", required: ["name", "description"], properties: { ...common, ...own[kind] } };
}

type Props = {
  kind: Kind;
  recipe: Recipe;
  /** The tools of its steps. */
  chosen: Chosen;
  /** What is wrong with an answer. */
  refused: { path: string; message: string }[];
  onChange: (recipe: Recipe) => void;
};

/** Questions about a tool for a person who writes no YAML. */
export function RecipeForm({ kind, recipe, chosen, refused, onChange }: Props) {
  return (
    <Suspense fallback={<Loading />}>
      <SchemaForm key={kind} schema={questions(kind, recipe, chosen)} value={recipe} refused={refused} onChange={(value) => onChange(begun(value as Recipe))} />
    </Suspense>
  );
}
