import { api, type Tool } from "../../api/client";
import { Card, EffectBadge, plain, Shown, useRead } from "../../parts";
import { type Key, said, t } from "../../text";
import { pathOf } from "./paths";

const KNOWN: Record<string, Key> = { page: "tool.callers.page", cli: "tool.callers.cli", mcp: "tool.callers.mcp" };

/** Read who may call a tool, and who is made with it. */
export function useCallers(tool: Tool) {
  const path = pathOf(tool);
  return useRead(["tool", "callers", path], () => api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/callers", { params: { path } }));
}

/** Everybody who may call a tool, and what the rules say about each. */
export function Callers({ tool }: { tool: Tool }) {
  const callers = useCallers(tool);
  return (
    <Card title={t("tool.callers")}>
      <Shown query={callers}>
        {(found) => (
          <ul className="stack">
            {found.callers.map(({ caller, effect, why }) => {
              const known = KNOWN[caller];
              return (
                <li key={caller} className="line">
                  <EffectBadge effect={effect} />
                  <span>{known === undefined ? plain(caller) : t(known)}</span>
                  {effect !== "allow" && <span className="muted">{plain(said(why))}</span>}
                </li>
              );
            })}
          </ul>
        )}
      </Shown>
    </Card>
  );
}
