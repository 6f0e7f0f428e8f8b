import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Badge, Bullets, Button, Check, chosenAfter, FileField, Form, Line, plain, Send, useAction } from "../../parts";
import { t } from "../../text";

type Report = Schemas["ImportedTools"];

/** The operations of an OpenAPI document, of which one chooses those that become tools. */
export function OpenApi() {
  const [url, setUrl] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [prefix, setPrefix] = useState("");
  const [replace, setReplace] = useState(false);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [report, setReport] = useState<Report | null>(null);
  const { mutate, error, isPending } = useAction(
    async (only: string[] | null) => {
      const source = file === null ? { url } : { text: await file.text() };
      return data(api.POST("/import/openapi", { body: { ...source, prefix, replace, write: only !== null, only: only ?? [] } }));
    },
    { done: setReport, refused: null },
  );
  const names = report?.operations.flatMap(({ tool }) => (tool === undefined ? [] : [tool])) ?? [];
  const chosen = names.filter((name) => !left.has(name));
  const written = report !== null && report.written.length > 0;
  return (
    <>
      <Form
        onChange={() => setReport(null)}
        submit={() => {
          setLeft(new Set());
          mutate(null);
        }}
      >
        <Line label={t("import.openapi.url")} type="url" dir="ltr" value={url} disabled={file !== null} change={setUrl} />
        <FileField label={t("import.openapi.file")} accept=".json,.yml,.yaml" change={setFile} />
        <Line label={t("import.openapi.prefix")} dir="ltr" value={prefix} change={setPrefix} />
        <Send label={t("import.read")} disabled={isPending || (file === null && url === "")} error={error} />
      </Form>
      {report !== null && (
        <>
          <h2>{plain(report.title)}</h2>
          <p className="muted">{t("import.openapi.found", { n: report.tools, skipped: report.skipped })}</p>
          <Bullets of={report.notes} />
          {written ? (
            <>
              <p role="status">
                <Badge tone="good">{t("import.written", { n: report.written.length })}</Badge> {t("import.trust")}
              </p>
              <Bullets of={report.written} />
            </>
          ) : (
            <>
              <Check on={chosen.length === names.length} change={(on) => setLeft(new Set(on ? [] : names))}>{t("import.openapi.all")}</Check>
              <ul className="rows">
                {report.operations.map((one) => (
                  <Operation
                    key={`${one.method} ${one.path}`}
                    operation={one}
                    chosen={one.tool !== undefined && !left.has(one.tool)}
                    change={(name, on) => setLeft(chosenAfter(left, name, !on))}
                  />
                ))}
              </ul>
              <Check on={replace} change={setReplace}>{t("import.openapi.replace")}</Check>
              <Button look="primary" disabled={isPending || chosen.length === 0} onClick={() => mutate(left.size > 0 ? chosen : [])}>
                {t("import.openapi.write", { n: chosen.length })}
              </Button>
            </>
          )}
        </>
      )}
    </>
  );
}

type OperationProps = { operation: Report["operations"][number]; chosen: boolean; change: (tool: string, on: boolean) => void };

function Operation({ operation, chosen, change }: OperationProps) {
  const { method, path, tool, reason, notes = [] } = operation;
  return (
    <li className="row">
      <div className="row-main">
        <Check on={chosen} disabled={tool === undefined} change={(on) => change(tool ?? "", on)}>
          <strong>{tool ?? t("import.skipped")}</strong> <code>{`${method} ${plain(path)}`}</code>
        </Check>
        <Bullets className="muted" of={[...(reason === undefined ? [] : [reason]), ...notes]} />
      </div>
    </li>
  );
}
