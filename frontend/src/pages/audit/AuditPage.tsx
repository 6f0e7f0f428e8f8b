import { useQuery } from "@tanstack/react-query";
import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, data, type Schemas } from "../../api/client";
import { Code } from "../../parts/Code";
import { Line } from "../../parts/fields";
import { saveFile } from "../../parts/files";
import { Heading } from "../../parts/Heading";
import { plain } from "../../parts/json";
import { Pages, usePages } from "../../parts/Pages";
import { Badge, Button, When } from "../../parts/small";
import { Empty } from "../../parts/states";
import { t } from "../../text";
import "../runs/runs.css";
import "./audit.css";

const PAGE = 100;
const FIELDS = ["tool", "event", "caller", "status", "code", "text"] as const;
type Lines = Schemas["LinePage"]["lines"];

/** The lines of the audit log by what they have in common, and the state of its chain. */
export function Page() {
  const address = useSearch({ strict: false }) as Record<string, string | undefined>;
  const navigate = useNavigate();
  const asked = Object.fromEntries(FIELDS.map((name) => [name, address[name] || undefined]));
  const pages = usePages(["audit", asked], (pageToken) =>
    data(api.GET("/audit", { params: { query: { ...asked, pageSize: PAGE, pageToken } } })),
  );
  const lines = pages.data?.pages.flatMap((page) => page.lines) ?? [];
  return (
    <div className="runs audit">
      <Heading text={t("page.audit")} />
      <Chain />
      <div className="toolbar">
        {FIELDS.map((name) => (
          <Line
            key={name}
            label={t(`audit.${name}`)}
            type="search"
            value={address[name] ?? ""}
            change={(value) => void navigate({ to: "/audit", replace: true, search: { ...asked, [name]: value } })}
          />
        ))}
      </div>
      <p>
        <Button disabled={lines.length === 0} onClick={() => save(lines)}>{t("audit.export", { n: lines.length })}</Button>
      </p>
      <Pages pages={pages} rows={(page) => page.lines} none={<Empty title={t("audit.none")} />}>
        {(line, index) => (
          <li key={line.seq ?? `stray ${index}`} className="row audit-row">
            <Entry line={line} />
          </li>
        )}
      </Pages>
    </div>
  );
}

function Entry({ line }: { line: Lines[number] }) {
  if (line.stray !== undefined) return <code>{plain(line.stray)}</code>;
  const { name, status, caller } = (line.fields ?? {}) as Record<string, unknown>;
  const tone = status === "success" ? "good" : status === "error" || status === "refused" ? "bad" : "";
  return (
    <details>
      <summary>
        <span>{line.event}</span>
        {typeof name === "string" && <strong>{plain(name)}</strong>}
        {typeof status === "string" && <Badge tone={tone}>{status}</Badge>}
        {typeof caller === "string" && <span className="muted">{plain(caller)}</span>}
        {line.time !== undefined && <When moment={line.time} />}
      </summary>
      <Code text={JSON.stringify(line.fields ?? {}, null, 2)} />
    </details>
  );
}

function Chain() {
  const chain = useQuery({
    queryKey: ["audit-chain"],
    queryFn: () => data(api.GET("/audit/verify")),
    staleTime: 60_000,
  });
  if (chain.data === undefined) return null;
  const { ok, lines, problem } = chain.data;
  return (
    <p>
      <Badge tone={ok ? "good" : "bad"}>{t(ok ? "audit.whole" : "audit.broken")}</Badge>{" "}
      {ok ? t("audit.lines", { n: lines }) : plain(problem?.message ?? "")}
    </p>
  );
}

/** Save lines as a file of JSON lines. */
function save(lines: Lines): void {
  const text = lines.map((line) => `${JSON.stringify(line)}\n`).join("");
  saveFile(new Blob([text], { type: "application/jsonl" }), "audit.jsonl");
}
