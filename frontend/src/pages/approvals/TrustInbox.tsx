import { useQuery } from "@tanstack/react-query";
import { api, data } from "../../api/client";
import { useAction } from "../../parts/action";
import { DiffLines } from "../../parts/DiffLines";
import { plain } from "../../parts/json";
import { Badge, Bullets } from "../../parts/small";
import { Shown } from "../../parts/states";
import { Sure } from "../../parts/Sure";
import { t } from "../../text";

/** Settings and tools that wait for trust, with what they may do and what has changed. */
export function TrustInbox() {
  const trust = useQuery({ queryKey: ["trust"], queryFn: () => data(api.GET("/trust")) });
  const give = useAction((tools: Record<string, string>) => data(api.POST("/trust", { body: { tools } })));
  return (
    <section className="stack" aria-labelledby="trust">
      <h2 id="trust">{t("trust.title")}</h2>
      <Shown query={trust}>
        {({ waiting, tools }) => {
          const waits = tools.filter((tool) => tool.waits);
          if (waiting.length + waits.length === 0) return <p className="muted">{t("trust.none")}</p>;
          return (
            <>
              {waiting.length > 0 && <p className="muted">{t("trust.how")}</p>}
              <ul className="rows">
                {waiting.map(({ key, allows }) => (
                  <li key={key} className="row">
                    <code>{key}</code> <span>{plain(allows)}</span>
                  </li>
                ))}
                {waits.map((tool) => (
                  <li key={tool.name} className="row stack">
                    <p className="line">
                      <strong>{tool.name}</strong> <Badge tone="warn">{t(`trust.${tool.status === "new" ? "new" : "changed"}`)}</Badge>
                      <Sure label={t("trust.give", { name: tool.name })} disabled={give.isPending} act={() => give.mutate({ [tool.name]: tool.digest })} />
                    </p>
                    <Bullets of={[...new Set([...tool.touches, ...tool.reasons])]} />
                    {tool.diff !== "" && (
                      <details>
                        <summary>{t("trust.diff")}</summary>
                        <DiffLines text={tool.diff} />
                      </details>
                    )}
                  </li>
                ))}
              </ul>
            </>
          );
        }}
      </Shown>
    </section>
  );
}
