import { api } from "../../api/client";
import { Badge, Bullets, Card, Empty, Pairs, Row, Rows, Shown, useRead, When } from "../../parts";
import { number, said, t } from "../../text";

const AGAIN_MS = 5_000;

/** The workers with what they run, and the stored calls that wait for one. */
export function Workers() {
  const workers = useRead(["calls", "workers"], () => api.GET("/workers"), { refetchInterval: AGAIN_MS });
  return (
    <>
      <Queue />
      <Shown query={workers}>
        {({ workers: found }) => (
          <Rows of={found} none={<Empty title={t("workers.none")} hint={t("workers.none.hint")} />}>
            {(one) => (
              <Row
                key={one.name}
                title={one.name}
                marks={<Badge>{t(`workers.${one.kind}`)}</Badge>}
                facts={[t("workers.runs", { n: one.running }), t("servers.tools", { n: one.tools.length }), <When key="seen" moment={one.seenAt} />]}
              >
                <Bullets
                  className="wrong"
                  of={Object.entries(one.refused).map(([reason, tools]) => t("workers.refused", { reason: said(reason), tools: tools.join(", ") }))}
                />
              </Row>
            )}
          </Rows>
        )}
      </Shown>
    </>
  );
}

function Queue() {
  const queue = useRead(["calls", "queue"], () => api.GET("/queue"), { refetchInterval: AGAIN_MS });
  return (
    <Card title={t("workers.queue")}>
      <Shown query={queue}>
        {(found) => (
          <>
            <Pairs
              of={{ [t("workers.ready")]: number(found.ready), [t("workers.running")]: number(found.running), [t("workers.waiting")]: number(found.waiting) }}
            />
            <ul className="versions">
              {found.tools.map((one) => (
                <li key={one.tool}>
                  <span>
                    <code>{one.tool}</code> {!one.served && <Badge tone="bad">{t("workers.unserved")}</Badge>}
                  </span>
                  <span className="muted">
                    {number(one.ready)} · {t("workers.oldest", { s: number(Math.round(one.waitsS)) })}
                  </span>
                </li>
              ))}
            </ul>
          </>
        )}
      </Shown>
    </Card>
  );
}
