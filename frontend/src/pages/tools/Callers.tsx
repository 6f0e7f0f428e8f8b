import { useQuery } from "@tanstack/react-query";
import { api, data, type Tool } from "../../api/client";
import { plain } from "../../parts/json";
import { Badge } from "../../parts/small";
import { Shown } from "../../parts/states";
import { t } from "../../text";

const TONES = { allow: "good", ask: "warn", deny: "bad" } as const;

/** Everybody who may call a tool, and what the rules say about each. */
export function Callers({ tool }: { tool: Tool }) {
  const path = { bundleID: tool.bundleID, toolSlug: tool.slug, v: tool.version };
  const callers = useQuery({
    queryKey: ["tool", "callers", path],
    queryFn: () => data(api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/callers", { params: { path } })),
  });
  return (
    <section className="card" aria-labelledby="callers">
      <h2 id="callers">{t("tool.callers")}</h2>
      <Shown query={callers}>
        {(found) => (
          <ul className="callers">
            {found.callers.map(({ caller, effect, why }) => (
              <li key={caller}>
                <Badge tone={TONES[effect]}>{t(`tool.effect.${effect}`)}</Badge>
                <span>{caller === "page" ? t("tool.callers.page") : caller === "mcp" ? t("tool.callers.mcp") : plain(caller)}</span>
                <span className="muted">{plain(why)}</span>
              </li>
            ))}
          </ul>
        )}
      </Shown>
    </section>
  );
}
