import { useQuery } from "@tanstack/react-query";
import { api, data, type Schemas, type Tool } from "../../api/client";
import { Badge, When } from "../../parts/small";
import { Shown } from "../../parts/states";
import { t } from "../../text";

const FEW = 10;
const PAGE = 256;
const TONES = { ok: "good", error: "bad", cancelled: "", running: "", awaiting_approval: "warn" } as const;

/** The last calls of a tool that the server knows of. */
export function RecentCalls({ tool }: { tool: Tool }) {
  const calls = useQuery({
    queryKey: ["calls", tool.name],
    queryFn: () => data(api.GET("/tools/calls", { params: { query: { pageSize: PAGE } } })),
    select: (page: Schemas["Calls"]) => page.calls.filter((call) => call.tool === tool.name).slice(0, FEW),
  });
  return (
    <section className="card" aria-labelledby="recent">
      <h2 id="recent">{t("tool.recent")}</h2>
      <Shown query={calls}>
        {(found) =>
          found.length === 0 ? (
            <p className="muted">{t("tool.recent.none")}</p>
          ) : (
            <ul className="versions">
              {found.map((call) => (
                <li key={call.callId}>
                  <span>
                    <Badge tone={TONES[call.status]}>{call.status.replace("_", " ")}</Badge> {call.caller}
                  </span>
                  <When moment={call.beganAt} />
                </li>
              ))}
            </ul>
          )
        }
      </Shown>
    </section>
  );
}
