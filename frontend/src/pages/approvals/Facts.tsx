import type { UseQueryResult } from "@tanstack/react-query";
import type { Schemas } from "../../api/client";
import { plain } from "../../parts/json";
import { When } from "../../parts/small";
import { Shown } from "../../parts/states";
import { t } from "../../text";

/** What a person should know of a tool before a decision about a call. */
export function Facts({ query }: { query: UseQueryResult<Schemas["ApprovalDetails"]> }) {
  return (
    <Shown query={query}>
      {({ facts, toolDigest }) =>
        facts === null ? (
          <p className="muted">{t("approvals.gone")}</p>
        ) : (
          <div className="facts">
            <p>{plain(facts.description)}</p>
            {facts.doubts.map((doubt) => (
              <p key={doubt} className="warnings">
                {plain(doubt)}
              </p>
            ))}
            <p className="muted">
              {t("approvals.ran", { n: facts.ran })} {facts.lastRan !== null && <When moment={facts.lastRan} />}
            </p>
            {facts.would !== null && (
              <pre tabIndex={0} dir="ltr">
                {plain(JSON.stringify(facts.would, null, 2))}
              </pre>
            )}
            {facts.untrusted.length > 0 && (
              <>
                <p>{t("approvals.untrusted")}</p>
                <pre tabIndex={0} dir="ltr">
                  {plain(facts.untrusted.join("\n"))}
                </pre>
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
