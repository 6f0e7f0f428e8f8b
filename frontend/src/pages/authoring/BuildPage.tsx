import { useBlocker, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useRef, useState } from "react";
import { api, data, type Schemas, type Tool } from "../../api/client";
import {
  announce, Bullets, Button, Choice, Code, Failure, type Finding, type Grant, Heading, Loading, plain, type Schema,
  Shown, Tabs, useRead,
} from "../../parts";
import { has, spoken, t, translated } from "../../text";
import { DraftTest } from "./DraftTest";
import { given, nextVersion, textOf, useChecked, useDraft } from "./drafts";
import { RecipeForm } from "./RecipeForm";
import { answersOf, KINDS, type Kind, manifestOf, questionAt, type Recipe, STARTS } from "./recipe";
import { Save } from "./Save";
import { useStepTools } from "./steps";
import "./build.css";
import { toYaml } from "./yaml";

const Editor = lazy(() => import("../../parts/Editor"));

/** A new tool, by questions or as text; a new version of one, or a copy. */
export function Page() {
  const { from = "", how } = useSearch({ strict: false }) as Record<string, string | undefined>;
  const [bundleID = "", toolSlug = "", v = ""] = from.split("/").map(decodeURIComponent);
  const path = { bundleID, toolSlug, v };
  const base = useRead(
    ["tool", path],
    () => api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}", { params: { path } }),
    { enabled: from !== "", staleTime: Infinity },
  );
  if (from === "" && how === "given") return <Start start={given.text} notes={given.notes} />;
  if (from === "") return <Build key={how} start={null} manifest={null} notes={[]} />;
  return (
    <Shown query={base}>
      {(tool) => {
        const text = textOf(tool) ?? "";
        const start = tool.source === "user" ? nextVersion(text) : text;
        return <Start key={tool.toolID} base={tool} start={how === "given" && given.text !== "" ? given.text : start} notes={[]} />;
      }}
    </Shown>
  );
}

type Props = { base?: Tool; start: string; notes: readonly string[] };

function Start(props: Props) {
  const draft = useDraft(props.start);
  return <Shown query={draft}>{({ manifest }) => <Build {...props} manifest={manifest as Schema | null} />}</Shown>;
}

/** The questions, where they can ask about all of the text that one starts with; else the editor. */
function Build({ base, start, manifest, notes }: Omit<Props, "start"> & { start: string | null; manifest: Schema | null }) {
  const { how } = useSearch({ strict: false }) as { how?: string };
  const first = start === null ? { kind: KINDS[0], recipe: STARTS.http } : read(manifest);
  const [mode, setMode] = useState<"form" | "text">("recipe" in first && how !== "text" ? "form" : "text");
  const [kind, setKind] = useState<Kind>("recipe" in first ? first.kind : "http");
  const [recipes, setRecipes] = useState("recipe" in first && start !== null ? { ...STARTS, [first.kind]: first.recipe } : STARTS);
  const [written, setWritten] = useState(start);
  const recipe = recipes[kind];
  const chosen = useStepTools((mode === "form" && recipe.steps) || []);
  const text = written ?? toYaml(manifestOf(kind, recipe, chosen.tools));
  // What another page has made is nowhere else.
  const isNew = start === null ? written === null && recipes === STARTS : text === start && text !== given.text;

  const [goTo, setGoTo] = useState<Finding | null>(null);
  const { checked, current, error } = useChecked(text);
  const findings = checked?.diagnostics ?? [];
  const tool = current ? (checked?.tool ?? null) : null;
  const why = written === null || !current ? "" : whyNot(read(checked?.manifest as Schema));
  const questions = findings.map((one) => (one.severity === "error" ? questionAt(one.where, kind, recipe) : ""));
  const refused = findings.map((one, index) => ({ path: questions[index] ?? "", message: inWords(one) }));

  const answer = (changed: Recipe) => {
    setRecipes({ ...recipes, [kind]: changed });
    setWritten(null);
  };
  const ask = async () => {
    const found = written === null ? { kind, recipe } : read((await data(api.POST("/tools/draft", { body: { text } }))).manifest as Schema | null);
    if ("lacks" in found) return announce(whyNot(found));
    setKind(found.kind);
    if (written !== null) setRecipes({ ...recipes, [found.kind]: found.recipe });
    setMode("form");
  };
  /** Take exactly these permissions; what they make impossible is said, and they are left. */
  const take = async (grants: Grant[]) => {
    const changed = await data(api.POST("/tools/draft/permissions", { body: { text, grants } }));
    const { manifest: made } = await data(api.POST("/tools/draft", { body: { text: changed.text } }));
    if (made === null) return announce(t("watch.refused"));
    const now = read(made as Schema);
    setWritten(changed.text);
    if ("recipe" in now) setRecipes({ ...recipes, [now.kind]: now.recipe });
    else setMode("text");
    announce(t("watch.taken"));
  };
  /** Ask about another kind of tool; what is common to all stays. */
  const choose = (next: Kind) => {
    const { name, description, arguments: taken } = recipe;
    setKind(next);
    setWritten(null);
    if (recipes !== STARTS) setRecipes({ ...recipes, [next]: { ...recipes[next], name, description, arguments: taken } });
  };
  const saved = useRef(false);
  useBlocker({
    shouldBlockFn: () => !saved.current && !confirm(t("build.leave")),
    enableBeforeUnload: () => !saved.current && !isNew,
    disabled: isNew,
  });

  return (
    <div className="build">
      <header className="line tool-head">
        <Heading text={base === undefined ? t("build.new") : t(base.source === "user" ? "build.version" : "build.copy", { name: translated(base).title })} />
        <Save tool={tool} text={text} base={base} before={base === undefined ? null : (textOf(base) ?? "")} done={() => (saved.current = true)} />
      </header>
      {base !== undefined && base.source !== "user" && <p className="warnings">{t("build.copy.about")}</p>}
      <Bullets className="warnings" of={notes} />
      <section className="card stack build-input" aria-label={t("build.definition")}>
        <div className="line">
          <Tabs value={mode} change={(one) => (one === "form" ? void ask() : setMode(one))} of={["form", "text"] as const} text={(one) => t(`build.${one}`)} />
          {mode === "form" && base === undefined && (
            <Choice className="sort" label={t("build.kind")} value={kind} change={choose} of={KINDS} text={(one) => t(`build.kind.${one}`)} />
          )}
        </div>
        {mode === "text" && why !== "" && <p className="muted">{why}</p>}
        {mode === "form" ? (
          <>
            <RecipeForm
              kind={kind}
              recipe={recipe}
              chosen={chosen}
              // What a step lacks, the form says itself.
              refused={isNew ? [] : refused.filter(({ path }) => path !== "" && !/^\$\.steps\[\d+\]$/.test(path))}
              onChange={answer}
            />
            <details>
              <summary>{t("tool.source")}</summary>
              <Code text={text} />
            </details>
          </>
        ) : (
          <Suspense fallback={<Loading />}>
            <Editor
              label={t("build.definition")}
              text={text}
              findings={current ? findings : []}
              goTo={goTo}
              onChange={(next) => next !== text && setWritten(next)}
            />
          </Suspense>
        )}
        {error !== null && <Failure error={error} />}
        {mode === "form" ? (
          <Bullets className="warnings" of={isNew ? [] : findings.filter((_, index) => questions[index] === "").map(inWords)} />
        ) : (
          <Findings found={findings} open={setGoTo} />
        )}
      </section>
      <DraftTest key={base?.toolID} tool={tool} text={text} take={kind === "composite" ? undefined : (grants) => void take(grants).catch(({ message }: Error) => announce(message))} />
    </div>
  );
}

/** Return the answers that a manifest has; one with an error has none. */
function read(manifest: Schema | null): ReturnType<typeof answersOf> {
  return manifest === null ? { lacks: [] } : answersOf(manifest);
}

/** Return why the questions do not show a text; "" if they can. */
function whyNot(found: ReturnType<typeof answersOf>): string {
  if (!("lacks" in found)) return "";
  return t(found.lacks.length === 0 ? "build.form.wait" : "build.form.lacks", { what: found.lacks.join(", ") });
}

/** Return a finding in words for people who know the questions, and no manifests. */
function inWords({ rule, where, severity, message }: Schemas["Finding"]): string {
  const key = `recipe.wrong.${rule}`;
  if (has(key) && !where.endsWith("entrypoint")) return t(key, { what: /`(.*?)`/.exec(message)?.[1] ?? "" });
  return severity === "error" || has(key) ? t("recipe.wrong") : plain(spoken(rule, message));
}

function Findings({ found, open }: { found: readonly Finding[]; open: (finding: Finding) => void }) {
  return (
    <ul className="stack findings" aria-label={t("build.findings")} aria-live="polite">
      {found.map((one) => (
        <li key={`${one.line} ${one.column} ${one.message}`} className={one.severity}>
          <Button look="quiet" onClick={() => open({ ...one })}>{`${t("build.line", { line: one.line })}: ${plain(spoken(one.rule, one.message))}`}</Button>
        </li>
      ))}
    </ul>
  );
}
