import { api, data, type Schemas } from "../../api/client";
import {
  Badge, Code, Empty, Filters, Fold, Heading, Pages, plain, queryOf, Save, useAddress, usePages, useRead, When,
  writeExact,
} from "../../parts";
import { t } from "../../text";
import german from "../../../../src/toolcrib/serve/german.json";
import { loggedState, StateBadge } from "../runs/states";
import "../runs/runs.css";
import "./audit.css";

const PAGE = 100;
const FIELDS = ["tool", "event", "caller", "status", "code", "text", "since", "until"] as const;
/** The values that filters suggest. */
const KNOWN = {
  event: [
    "AGENT_CREATED", "TOOL_CREATED", "TOOL_APPROVED", "TOOL_DENIED", "APPROVAL_VOID", "APPROVAL_REFUSED", "APPROVAL_REVOKED",
    "TOOL_STARTED", "TOOL_EXECUTED", "TOOL_WAITS", "TOOL_REPLAYED", "TOOL_REFUSED", "MCP_SERVER_STARTED", "MCP_SERVER_ENDED", "TRUSTED",
    "TRUST_REVOKED", "TOOL_ENABLED", "TOOL_DISABLED", "BUNDLE_ENABLED", "BUNDLE_DISABLED", "POLICY_CHANGED", "SECRET_SET", "SECRET_REMOVED",
    "SANDBOX_LOWERED", "AUDIT_RECOVERED", "AUDIT_RESUMED", "AUDIT_ROTATED", "AUDIT_GAP",
  ],
  status: ["success", "error", "refused", "pending", "interrupted"],
  code: Object.keys(german.errors),
};
type Lines = Schemas["LinePage"]["lines"];

/** The lines of the audit log by what they have in common, and the state of its chain. */
export function Page() {
  const [values, change] = useAddress("/audit", FIELDS);
  const asked = queryOf(values);
  const pages = usePages(["audit", asked], (pageToken) =>
    data(api.GET("/audit", { params: { query: { ...asked, pageSize: PAGE, pageToken } } })),
  );
  return (
    <div className="runs audit">
      <Heading text={t("page.audit")} />
      <Chain />
      <Filters of={FIELDS} values={values} change={change} known={KNOWN} />
      <p>
        <Save label={t("audit.export")} path="/audit/export" query={asked} />
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
  const fields = (line.fields ?? {}) as Record<string, unknown>;
  const { name, status, caller } = fields;
  return (
    <Fold
      title={
        <>
          <span>{line.event}</span>
          {typeof name === "string" && <strong>{plain(name)}</strong>}
          {typeof status === "string" && <StateBadge state={loggedState(fields)} />}
          {typeof caller === "string" && <span className="muted">{plain(caller)}</span>}
          {line.time !== undefined && <When moment={line.time} />}
        </>
      }
    >
      {() => <Code text={writeExact(fields, 2)} />}
    </Fold>
  );
}

function Chain() {
  const chain = useRead(["audit-chain"], () => api.GET("/audit/verify"), { staleTime: 60_000 });
  if (chain.data === undefined) return null;
  const { ok, lines, problem } = chain.data;
  return (
    <p>
      <Badge tone={ok ? "good" : "bad"}>{t(ok ? "audit.whole" : "audit.broken")}</Badge>{" "}
      {ok ? t("audit.lines", { n: lines }) : plain(problem?.message ?? "")}
    </p>
  );
}
