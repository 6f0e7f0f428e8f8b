import { useState } from "react";
import { errorOf, type Schemas, send } from "../../api/client";
import { Badge, Button, Check, Choice, Failure, FileField, Form, Send, useAction } from "../../parts";
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
  const { mutate, error, isPending } = useAction(
    async (only: boolean) => {
      const query = new URLSearchParams({ onConflict, enable: String(enable), dryRun: String(only) }).toString();
      const headers = { "content-type": "application/zip" };
      const answer = await send(`/tools/import?${query}`, { method: "POST", headers, body: file });
      const body: unknown = await answer.json();
      if (!answer.ok) throw errorOf(body, answer.status);
      return body as Plan;
    },
    {
      done: (found, only) => {
        setPlan(found);
        setDone(!only);
      },
      refused: null,
    },
  );
  return (
    <>
      <Form submit={() => mutate(true)} onChange={() => setPlan(null)}>
        <FileField label={t("import.zip.file")} accept=".zip" change={setFile} />
        <Choice label={t("import.zip.conflict")} value={onConflict} change={setOnConflict} of={CHOICES} text={(one) => t(`import.zip.${one}`)} />
        <Check on={enable} change={setEnable}>{t("import.zip.enable")}</Check>
        <Send label={t("import.read")} disabled={isPending || file === null} error={error} />
      </Form>
      {plan !== null && (
        <>
          <h2>
            {plan.slug} <Badge tone={done ? "good" : ""}>{t(done ? "import.zip.done" : `import.action.${plan.action}`)}</Badge>
          </h2>
          {done && <p role="status">{t("import.trust")}</p>}
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
            <Button look="primary" disabled={!plan.changes} onClick={() => mutate(false)}>{t("import.title")}</Button>
          )}
        </>
      )}
    </>
  );
}
