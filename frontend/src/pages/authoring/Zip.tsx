import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { errorOf, type Schemas, send } from "../../api/client";
import { Choice } from "../../parts/fields";
import { Badge } from "../../parts/small";
import { Failure } from "../../parts/states";
import { t } from "../../text";

type Plan = Schemas["ImportPlan"];
const CHOICES = ["refuse", "skip", "replace", "new-id"] as const;

/** A bundle as `export` writes it: first what would be done, then all of it or nothing. */
export function Zip() {
  const [file, setFile] = useState<File | null>(null);
  const [onConflict, setOnConflict] = useState<(typeof CHOICES)[number]>("refuse");
  const [enable, setEnable] = useState(true);
  const [plan, setPlan] = useState<Plan | null>(null);
  const [done, setDone] = useState(false);
  const [failure, setFailure] = useState<unknown>(null);
  const queries = useQueryClient();

  const ask = async (dryRun: boolean) => {
    setFailure(null);
    try {
      const query = new URLSearchParams({ onConflict, enable: String(enable), dryRun: String(dryRun) }).toString();
      const headers = { "content-type": "application/zip" };
      const answer = await send(`/tools/import?${query}`, { method: "POST", headers, body: file });
      const body: unknown = await answer.json();
      if (!answer.ok) throw errorOf(body, answer.status);
      setPlan(body as Plan);
      setDone(!dryRun);
      if (!dryRun) void queries.invalidateQueries();
    } catch (error) {
      setFailure(error);
    }
  };
  const changed = () => setPlan(null);
  return (
    <>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void ask(true);
        }}
        onChange={changed}
      >
        <label className="field-stack">
          <span>{t("import.zip.file")}</span>
          <input type="file" accept=".zip" onChange={(event) => setFile(event.target.files?.[0] ?? null)} />
        </label>
        <Choice label={t("import.zip.conflict")} value={onConflict} change={setOnConflict} of={CHOICES} text={(one) => t(`import.zip.${one}`)} />
        <label className="facet">
          <input type="checkbox" checked={enable} onChange={(event) => setEnable(event.target.checked)} />
          <span>{t("import.zip.enable")}</span>
        </label>
        <button type="submit" className="button primary" disabled={file === null}>
          {t("import.read")}
        </button>
      </form>
      {failure !== null && <Failure error={failure} />}
      {plan !== null && (
        <>
          <h2>
            {plan.slug} <Badge tone={done ? "good" : ""}>{t(done ? "import.zip.done" : `import.action.${plan.action}`)}</Badge>
          </h2>
          {plan.refused !== null && <Failure error={errorOf({ error: plan.refused }, 409)} />}
          <ul className="rows">
            {plan.tools.map(({ slug, version, action }) => (
              <li key={`${slug} ${version}`} className="row">
                <strong className="row-main">
                  {slug} {version}
                </strong>
                <Badge tone={action === "conflict" ? "bad" : ""}>{t(`import.action.${action}`)}</Badge>
              </li>
            ))}
          </ul>
          {!done && plan.refused === null && (
            <button type="button" className="button primary" disabled={!plan.changes} onClick={() => void ask(false)}>
              {t("import.zip.write")}
            </button>
          )}
        </>
      )}
    </>
  );
}
