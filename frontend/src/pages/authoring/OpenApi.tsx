import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Form, Line } from "../../parts/fields";
import { plain } from "../../parts/json";
import { Badge } from "../../parts/small";
import { Failure } from "../../parts/states";
import { t } from "../../text";

type Report = Schemas["ImportedTools"];

/** The operations of an OpenAPI document, of which one chooses those that become tools. */
export function OpenApi() {
  const [url, setUrl] = useState("");
  const [file, setFile] = useState<File | null>(null);
  const [prefix, setPrefix] = useState("");
  const [replace, setReplace] = useState(false);
  const [report, setReport] = useState<Report | null>(null);
  const [left, setLeft] = useState<ReadonlySet<string>>(new Set());
  const [state, setState] = useState<{ busy: boolean; failure: unknown }>({ busy: false, failure: null });
  const queries = useQueryClient();
  const names = report?.operations.flatMap(({ tool }) => (tool === undefined ? [] : [tool])) ?? [];
  const chosen = names.filter((name) => !left.has(name));
  const written = report !== null && report.written.length > 0;

  const ask = async (write: boolean) => {
    setState({ busy: true, failure: null });
    try {
      const source = file === null ? { url } : { text: await file.text() };
      const body = { ...source, prefix, write, replace, only: write && left.size > 0 ? chosen : [] };
      setReport(await data(api.POST("/import/openapi", { body })));
      if (write) void queries.invalidateQueries();
      setState({ busy: false, failure: null });
    } catch (failure) {
      setState({ busy: false, failure });
    }
  };
  return (
    <>
      <Form
        submit={() => {
          setLeft(new Set());
          void ask(false);
        }}
      >
        <Line label={t("import.openapi.url")} type="url" dir="ltr" value={url} disabled={file !== null} change={setUrl} />
        <label className="field-stack">
          <span>{t("import.openapi.file")}</span>
          <input type="file" accept=".json,.yml,.yaml" onChange={(event) => setFile(event.target.files?.[0] ?? null)} />
        </label>
        <Line label={t("import.openapi.prefix")} dir="ltr" value={prefix} change={setPrefix} />
        <button type="submit" className="button primary" disabled={state.busy || (file === null && url === "")}>
          {t("import.read")}
        </button>
      </Form>
      {state.failure !== null && <Failure error={state.failure} />}
      {report !== null && (
        <>
          <h2>{plain(report.title)}</h2>
          <p className="muted">{t("import.openapi.found", { n: report.tools, skipped: report.skipped })}</p>
          <ul className="bullets">
            {report.notes.map((note) => (
              <li key={note}>{plain(note)}</li>
            ))}
          </ul>
          {written ? (
            <>
              <p role="status">
                <Badge tone="good">{t("import.written", { n: report.written.length })}</Badge> {t("trust.how")}
              </p>
              <ul className="bullets">
                {report.written.map((path) => (
                  <li key={path}>
                    <code>{path}</code>
                  </li>
                ))}
              </ul>
            </>
          ) : (
            <>
              <ul className="rows">
                {report.operations.map((one) => (
                  <Operation
                    key={`${one.method} ${one.path}`}
                    operation={one}
                    chosen={one.tool !== undefined && !left.has(one.tool)}
                    toggle={(name) => setLeft((known) => (known.has(name) ? new Set([...known].filter((other) => other !== name)) : new Set([...known, name])))}
                  />
                ))}
              </ul>
              <label className="facet">
                <input type="checkbox" checked={replace} onChange={(event) => setReplace(event.target.checked)} />
                <span>{t("import.openapi.replace")}</span>
              </label>
              <button type="button" className="button primary" disabled={state.busy || chosen.length === 0} onClick={() => void ask(true)}>
                {t("import.openapi.write", { n: chosen.length })}
              </button>
            </>
          )}
        </>
      )}
    </>
  );
}

type OperationProps = { operation: Report["operations"][number]; chosen: boolean; toggle: (tool: string) => void };

function Operation({ operation, chosen, toggle }: OperationProps) {
  const { method, path, tool, reason, notes = [] } = operation;
  return (
    <li className="row">
      <div className="row-main">
        <label>
          <input type="checkbox" checked={chosen} disabled={tool === undefined} onChange={() => tool !== undefined && toggle(tool)} />
          <span>
            <strong>{tool ?? t("import.skipped")}</strong>{" "}
            <code>
              {method} {plain(path)}
            </code>
          </span>
        </label>
        {[...(reason === undefined ? [] : [reason]), ...notes].map((line) => (
          <p key={line} className="muted">
            {plain(line)}
          </p>
        ))}
      </div>
    </li>
  );
}
