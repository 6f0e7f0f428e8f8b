import { useQuery } from "@tanstack/react-query";
import { api, data, type Schemas } from "../../api/client";
import { Code } from "../../parts/Code";
import { useAction } from "../../parts/action";
import { saveFile } from "../../parts/files";
import { Filters, queryOf, useAddress } from "../../parts/Filters";
import { Heading } from "../../parts/Heading";
import { plain } from "../../parts/json";
import { Pages, usePages } from "../../parts/Pages";
import { Badge, Button, When } from "../../parts/small";
import { Empty } from "../../parts/states";
import { t } from "../../text";
import "../runs/runs.css";
import "./audit.css";

const PAGE = 100;
const MOST = 256;
const FIELDS = ["tool", "event", "caller", "status", "code", "text", "since", "until"] as const;
type Lines = Schemas["LinePage"]["lines"];

/** The lines of the audit log by what they have in common, and the state of its chain. */
export function Page() {
  const [values, change] = useAddress("/audit", FIELDS);
  const asked = queryOf(values);
  const read = (pageToken: string | undefined, pageSize = PAGE) =>
    data(api.GET("/audit", { params: { query: { ...asked, pageSize, pageToken } } }));
  const pages = usePages(["audit", asked], read);
  const save = useAction(() => saveAll((pageToken) => read(pageToken, MOST)));
  return (
    <div className="runs audit">
      <Heading text={t("page.audit")} />
      <Chain />
      <Filters of={FIELDS} values={values} change={change} />
      <p>
        <Button disabled={save.isPending} onClick={() => save.mutate()}>{t("audit.export")}</Button>
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

/** Save all lines of all pages as a file of JSON lines. */
async function saveAll(read: (pageToken: string | undefined) => Promise<Schemas["LinePage"]>): Promise<void> {
  let text = "";
  let next: string | undefined;
  do {
    const page = await read(next);
    text += page.lines.map((line) => `${JSON.stringify(line)}\n`).join("");
    next = page.nextPageToken ?? undefined;
  } while (next !== undefined);
  saveFile(new Blob([text], { type: "application/jsonl" }), "audit.jsonl");
}
