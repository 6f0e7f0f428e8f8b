import { api } from "../../api/client";
import { Badge, Pairs, plain, Row, Shown, useRead } from "../../parts";
import { said, t } from "../../text";

/** How well this machine can confine tools: what `toolcrib doctor` prints. */
export function Machine() {
  const machine = useRead(["machine"], () => api.GET("/doctor"));
  return (
    <Shown query={machine}>
      {(found) => (
        <>
          <section className="card">
            <Pairs
              of={{
                [t("machine.level")]: <Badge tone={found.level.startsWith("full") ? "good" : "warn"}>{found.level}</Badge>,
                Toolcrib: found.toolcrib,
                Python: found.python,
                Linux: found.kernel,
                [t("machine.decide")]: found.decideWithoutTerminal.map(({ what, where }) => `${what.join(", ")}: ${where.join(", ")}`).join("; ") || null,
              }}
            />
          </section>
          <ul className="rows">
            {found.mechanisms.map(({ name, ok, required, detail, cost }) => (
              <Row
                key={name}
                title={said(name)}
                marks={
                  <>
                    <Badge tone={ok ? "good" : required ? "bad" : "warn"}>{t(ok ? "machine.ok" : "secrets.missing")}</Badge>
                    {required && <span className="muted">{t("tool.required")}</span>}
                  </>
                }
              >
                {detail !== "works" && <p>{plain(said(detail))}</p>}
                {!ok && <p className="muted">{t("machine.cost", { cost: said(cost) })}</p>}
              </Row>
            ))}
          </ul>
        </>
      )}
    </Shown>
  );
}
