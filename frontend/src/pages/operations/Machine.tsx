import { useQuery } from "@tanstack/react-query";
import { api, data } from "../../api/client";
import { plain } from "../../parts/json";
import { Badge } from "../../parts/small";
import { Shown } from "../../parts/states";
import { t } from "../../text";

/** How well this machine can confine tools: what `toolcrib doctor` prints. */
export function Machine() {
  const machine = useQuery({ queryKey: ["machine"], queryFn: () => data(api.GET("/doctor")) });
  return (
    <Shown query={machine}>
      {(found) => (
        <>
          <section className="card">
            <dl className="pairs">
              <dt>{t("machine.level")}</dt>
              <dd>
                <Badge tone={found.level.startsWith("full") ? "good" : "warn"}>{found.level}</Badge>
              </dd>
              <dt>Toolcrib</dt>
              <dd>{found.toolcrib}</dd>
              <dt>Python</dt>
              <dd>{found.python}</dd>
              <dt>Linux</dt>
              <dd>{found.kernel}</dd>
              {found.decideWithoutTerminal.map(({ what, where }) => (
                <div key={where.join()} className="pair">
                  <dt>{t("machine.decide")}</dt>
                  <dd>
                    {what.join(", ")}: {where.join(", ")}
                  </dd>
                </div>
              ))}
            </dl>
          </section>
          <ul className="rows">
            {found.mechanisms.map(({ name, ok, required, detail, cost }) => (
              <li key={name} className="row">
                <div className="row-main">
                  <p className="entry-head">
                    <span className="row-title">{name}</span>
                    <Badge tone={ok ? "good" : required ? "bad" : "warn"}>{t(ok ? "machine.ok" : "machine.lacks")}</Badge>
                    {required && <span className="muted">{t("machine.required")}</span>}
                  </p>
                  <p>{plain(detail)}</p>
                  {!ok && <p className="muted">{t("machine.cost", { cost })}</p>}
                </div>
              </li>
            ))}
          </ul>
        </>
      )}
    </Shown>
  );
}
