import { Link } from "@tanstack/react-router";
import { api, type Tool } from "../../api/client";
import { Button, Card, fieldText, plain, Shown, useRead, When, writeExact } from "../../parts";
import { number, t } from "../../text";
import { loggedState, StateBadge } from "../runs/states";

const FEW = 12;
const PAGE = 60;

/** The last calls of a tool by whatever interface, as the audit log has them, each to be made again. */
export function History({ tool, use }: { tool: Tool; use: (text: string) => void }) {
  const calls = useRead(
    ["audit", "history", tool.name],
    () => api.GET("/audit", { params: { query: { tool: tool.name, pageSize: PAGE } } }),
    { select: ({ lines }) => lines.filter(({ fields }) => fields?.params !== undefined && fields.status !== undefined).slice(0, FEW) },
  );
  return (
    <Card title={t("tool.history")}>
      <Shown query={calls}>
        {(found) =>
          found.length === 0 ? (
            <p className="muted">{t("tool.history.none")}</p>
          ) : (
            <>
              <ul className="stack history">
                {found.map(({ seq, time, fields = {} }) => {
                  const { caller, ms, params } = fields;
                  const text = plain(writeExact(params));
                  const isWhole = typeof params === "object" && !(Array.isArray(fields.cut) && fields.cut.includes("params"));
                  return (
                    <li key={seq} className="beside">
                      <div className="row-main">
                        <p className="line">
                          <StateBadge state={loggedState(fields)} />
                          <span>{plain(String(caller ?? ""))}</span>
                          {ms !== undefined && <span>{t("test.duration", { ms: number(Math.round(Number(fieldText(ms)))) })}</span>}
                          {time !== undefined && <When moment={time} />}
                        </p>
                        <code className="one-line" title={writeExact(params, 2)}>{text}</code>
                      </div>
                      {isWhole && (
                        <Button aria-label={t("tool.history.again", { arguments: text })} onClick={() => use(writeExact(params, 2))}>
                          {t("tool.examples.use")}
                        </Button>
                      )}
                    </li>
                  );
                })}
              </ul>
              <Link to="/audit" search={{ tool: tool.name } as never}>
                {t("tool.history.all")}
              </Link>
            </>
          )
        }
      </Shown>
    </Card>
  );
}
