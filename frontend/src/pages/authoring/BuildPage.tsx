import { useBlocker, useSearch } from "@tanstack/react-router";
import { lazy, Suspense, useRef, useState } from "react";
import { api, data, type Tool } from "../../api/client";
import { Code } from "../../parts/Code";
import type { Finding } from "../../parts/Editor";
import { Choice } from "../../parts/fields";
import { Heading } from "../../parts/Heading";
import { plain } from "../../parts/json";
import { announce } from "../../parts/notices";
import { Bullets, Button } from "../../parts/small";
import { Failure, Loading, Shown } from "../../parts/states";
import type { Grant } from "../../parts/Watched";
import { useRead } from "../../parts/read";
import { t } from "../../text";
import { DraftTest } from "./DraftTest";
import { given, nextVersion, textOf, useChecked } from "./drafts";
import { RecipeForm } from "./RecipeForm";
import { grantedIn, KINDS, type Kind, manifestOf, type Recipe, STARTS } from "./recipe";
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
  if (from === "") return <Build key={how} start={how === "given" ? given.text : ""} notes={how === "given" ? given.notes : []} />;
  return (
    <Shown query={base}>
      {(tool) => {
        const text = textOf(tool) ?? "";
        const start = tool.source === "user" ? nextVersion(text) : text;
        return <Build key={tool.toolID} base={tool} start={how === "given" && given.text !== "" ? given.text : start} notes={[]} />;
      }}
    </Shown>
  );
}

function Build({ base, start, notes }: { base?: Tool; start: string; notes: readonly string[] }) {
  const { how } = useSearch({ strict: false }) as { how?: string };
  const byForm = base === undefined && how === undefined;
  const [mode, setMode] = useState<"form" | "text">(byForm ? "form" : "text");
  const [kind, setKind] = useState<Kind>("http");
  const [recipes, setRecipes] = useState(STARTS);
  const chosen = useStepTools((byForm && kind === "composite" && recipes.composite.steps) || []);
  const made = toYaml(manifestOf(kind, recipes[kind], chosen.tools));
  const [written, setWritten] = useState<string | null>(byForm ? null : start);
  const text = written ?? made;
  const isNew = written === null ? recipes === STARTS : text === start;

  const [goTo, setGoTo] = useState<Finding | null>(null);
  const { checked, current, error } = useChecked(text);
  const findings = checked?.diagnostics ?? [];
  const tool = current ? (checked?.tool ?? null) : null;

  const take = (grants: Grant[]) => {
    if (mode === "form") {
      setRecipes({ ...recipes, command: { ...recipes.command, ...grantedIn(grants) } });
      announce(t("watch.taken"));
      return;
    }
    data(api.POST("/tools/draft/permissions", { body: { text, grants } }))
      .then((changed) => {
        setWritten(changed.text);
        announce(t("watch.taken"));
      })
      .catch((failure: Error) => announce(failure.message));
  };
  /** Ask about another kind of tool; what is common to all stays. */
  const choose = (next: Kind) => {
    const { name, description, arguments: taken } = recipes[kind];
    setKind(next);
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
        <Heading text={base === undefined ? t("build.new") : t(base.source === "user" ? "build.version" : "build.copy", { name: base.displayName || base.name })} />
        <Save tool={tool} text={text} base={base} before={base === undefined ? null : (textOf(base) ?? "")} done={() => (saved.current = true)} />
      </header>
      {base !== undefined && base.source !== "user" && <p className="warnings">{t("build.copy.about")}</p>}
      <Bullets className="warnings" of={notes} />
      <section className="card stack build-input" aria-label={t("build.definition")}>
        {base === undefined && (
          <div className="line">
            <div className="tabs">
              {(["form", "text"] as const).map((one) => (
                <button
                  key={one}
                  type="button"
                  className="button"
                  aria-pressed={mode === one}
                  disabled={one === "form" && written !== null}
                  title={one === "form" && written !== null ? t("build.form.lost") : undefined}
                  onClick={() => setMode(one)}
                >
                  {t(`build.${one}`)}
                </button>
              ))}
            </div>
            {mode === "form" && (
              <Choice className="sort" label={t("build.kind")} value={kind} change={choose} of={KINDS} text={(one) => t(`build.kind.${one}`)} />
            )}
          </div>
        )}
        {mode === "form" ? (
          <>
            <RecipeForm kind={kind} recipe={recipes[kind]} chosen={chosen} onChange={(recipe: Recipe) => setRecipes({ ...recipes, [kind]: recipe })} />
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
        <Findings found={mode === "form" && isNew ? [] : findings} open={mode === "text" ? setGoTo : undefined} />
      </section>
      <DraftTest key={base?.toolID} tool={tool} text={text} take={mode === "form" && kind !== "command" ? undefined : take} />
    </div>
  );
}

function Findings({ found, open }: { found: readonly Finding[]; open?: (finding: Finding) => void }) {
  return (
    <ul className="stack findings" aria-label={t("build.findings")} aria-live="polite">
      {found.map((one) => {
        const message = plain(one.message);
        return (
          <li key={`${one.line} ${one.column} ${one.message}`} className={one.severity}>
            {open === undefined ? (
              message
            ) : (
              <Button look="quiet" onClick={() => open({ ...one })}>{`${t("build.line", { line: one.line })}: ${message}`}</Button>
            )}
          </li>
        );
      })}
    </ul>
  );
}
