import type { UseQueryResult } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { Bullets, Code, plain, Shown, Value, When, writeExact } from "../../parts";
import { t, translated } from "../../text";
import { differences } from "./diff";

/** What a person should know of a tool before a decision about a call. */
export function Facts({ query }: { query: UseQueryResult<Schemas["ApprovalDetails"]> }) {
  return (
    <Shown query={query}>
      {({ facts, toolDigest, arguments: asked }) =>
        facts === null ? (
          <p className="muted">{t("approvals.gone")}</p>
        ) : (
          <div className="stack">
            <p>{plain(Object.values(translated(facts)).filter(Boolean).join(": "))}</p>
            <Bullets className="warnings" of={facts.doubts} />
            <p className="muted">
              {t("approvals.ran", { n: facts.ran })} {facts.lastRan !== null && <When moment={facts.lastRan} />}
            </p>
            <Compared last={facts.lastApproved} asked={asked} />
            {facts.would !== null && <Code text={writeExact(facts.would, 2)} />}
            {facts.untrusted.length > 0 && (
              <>
                <p>{t("approvals.untrusted")}</p>
                <Code text={facts.untrusted.join("\n")} />
              </>
            )}
            <p className="muted">
              <code>{toolDigest.slice(0, 12)}</code>
            </p>
          </div>
        )
      }
    </Shown>
  );
}

/** What differs from the call of this tool that was approved last. */
function Compared({ last, asked }: { last: Schemas["LastApproved"] | null; asked: Record<string, unknown> }) {
  if (last === null) return <p className="muted">{t("approvals.first")}</p>;
  const found = differences(last.arguments, asked);
  return (
    <>
      <p>
        {t(found.length === 0 ? "approvals.same" : "approvals.differs", { by: plain(last.by) })}{" "}
        <When moment={last.at} />
      </p>
      <ul className="stack differences">
        {found.map(({ place, before, after }) => (
          <li key={place} className="line">
            <code>{plain(place)}</code>
            {before !== undefined && <del><Value text={before} /></del>}
            {after !== undefined && <ins><Value text={after} /></ins>}
          </li>
        ))}
      </ul>
    </>
  );
}
