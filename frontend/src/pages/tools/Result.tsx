import { api, type Schemas } from "../../api/client";
import { Bullets, Code, plain, Save, Shown, shownExact, useRead, writeExact } from "../../parts";
import { number, said, spoken, t } from "../../text";
import { StateBadge } from "../runs/states";
import type { CallEvent, Ended } from "./call";

/** The events of a call as they come; once it has ended, the output that came. */
export function Progress({ events, running }: { events: CallEvent[]; running: boolean }) {
  const progress = running ? events.findLast(({ kind }) => kind === "progress")?.data : undefined;
  const waiting = running && events.at(-1)?.kind === "approval" ? events.at(-1)?.data : undefined;
  const output = events.map(({ kind, data }) => (kind === "chunk" ? (data.text ?? "") : "")).join("");
  return (
    <>
      {waiting !== undefined && <p className="warnings">{t("test.waiting", { reason: said(waiting.message ?? "") })}</p>}
      {progress !== undefined && (
        <p className="line">
          <progress value={progress.done ?? undefined} max={progress.total ?? undefined} />
          {progress.total != null && <span>{t("test.progress", { done: progress.done ?? 0, total: progress.total })}</span>}
          <span>{plain(progress.message ?? "")}</span>
        </p>
      )}
      {output !== "" && (
        <figure className="stack">
          <figcaption>{t("test.output")}</figcaption>
          <Code text={output} />
        </figure>
      )}
    </>
  );
}

/** The end of a call: the first lines of its value or its error, and the facts about it. */
export function Result({ ended, lines }: { ended: Ended; lines?: number }) {
  const { result, call } = ended;
  const { ok, value, error, warnings, meta } = result;
  return (
    <>
      <p className="line">
        <StateBadge state={call?.status === "cancelled" ? "cancelled" : ok ? "ok" : "error"} />
        {call !== null && <Times call={call} />}
      </p>
      {ok ? <Code text={shownExact(value)} lines={lines} /> : <Problem error={error} />}
      {linksOf(value).map(({ uri, mimeType }) => (
        <p key={uri}>
          <Save label={t("test.save", { type: plain(String(mimeType)) })} path={uri.replace(ARTIFACTS, "/tools/artifacts/")} />
        </p>
      ))}
      <Bullets className="muted bullets" of={warnings ?? []} />
      {meta !== undefined && <Facts facts={meta} />}
      {!ok && error?.details != null && Object.keys(error.details).length > 0 && <Facts facts={error.details} />}
    </>
  );
}

/** The end of a stored call, once it has one. */
export function CallResult({ id }: { id: string }) {
  const found = useRead(["calls", id], () => api.GET("/tools/calls/{callId}", { params: { path: { callId: id } } }));
  return (
    <Shown query={found}>
      {(call) => call.result != null && <div className="stack"><Result ended={{ result: call.result, call }} /></div>}
    </Shown>
  );
}

const ARTIFACTS = "toolcrib://artifacts/";
type Link = { uri: string; mimeType?: string };

/** Return the links to outputs that were too large, or not text, to be in the value. */
function linksOf(value: unknown): Link[] {
  const { content } = (value ?? {}) as { content?: unknown };
  const blocks = Array.isArray(content) ? (content as (Partial<Link> | null)[]) : [];
  return blocks.filter((one): one is Link => typeof one?.uri === "string" && one.uri.startsWith(ARTIFACTS));
}

function between(from: string, to: string): string {
  return number(Math.max(0, Date.parse(to) - Date.parse(from)));
}

function Times({ call }: { call: Schemas["CallState"] }) {
  const attempts = call.history?.attempts ?? [];
  const first = attempts[0];
  return (
    <>
      {call.endedAt != null && <span>{t("test.duration", { ms: between(call.beganAt, call.endedAt) })}</span>}
      {first !== undefined && <span>{t("test.queued", { ms: between(call.beganAt, first.beganAt) })}</span>}
      {attempts.length > 0 && <span>{t("test.attempts", { n: attempts.length })}</span>}
    </>
  );
}

function Problem({ error }: { error: Schemas["Problem"] | undefined }) {
  if (error === undefined) return null;
  return (
    <div className="stack problem">
      <p>
        <code>{error.code}</code> {plain(spoken(error.code, error.message))}
      </p>
      {error.hint != null && error.hint !== "" && <p className="muted">{plain(said(error.hint))}</p>}
      <ul className="bullets">
        {(error.violations ?? []).map(({ path, message }) => (
          <li key={`${path} ${message}`}>
            <code>{path}</code> {plain(message)}
          </li>
        ))}
      </ul>
    </div>
  );
}

function Facts({ facts }: { facts: Record<string, unknown> }) {
  return (
    <details>
      <summary>{t("test.facts")}</summary>
      <Code text={writeExact(facts, 2)} />
    </details>
  );
}
