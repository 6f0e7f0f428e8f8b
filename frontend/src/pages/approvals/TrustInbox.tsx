import { api, data, type Schemas } from "../../api/client";
import { Badge, Bullets, DiffLines, Fold, plain, Shown, Sure, useAction, useRead } from "../../parts";
import { t, touch } from "../../text";
import { groupsBy } from "./diff";

type Waiting = Schemas["ToolTrust"];

/** Settings and tools that wait for trust, with what they may do and what has changed. */
export function TrustInbox() {
  const trust = useRead(["trust"], () => api.GET("/trust", { params: { query: { waits: true } } }));
  return (
    <section className="stack" aria-labelledby="trust">
      <h2 id="trust">{t("trust.title")}</h2>
      <Shown query={trust}>
        {({ waiting, tools }) => {
          const groups = groupsBy(tools, ({ reasons }) => reasons);
          if (waiting.length + groups.length === 0) return <p className="muted">{t("trust.none")}</p>;
          return (
            <>
              {waiting.length > 0 && <p className="muted">{t("trust.how")}</p>}
              <ul className="rows">
                {waiting.map(({ key, allows }) => (
                  <li key={key} className="row">
                    <code>{key}</code> <span>{plain(allows)}</span>
                  </li>
                ))}
              </ul>
              {groups.map((group) => (
                <Group key={group[0]?.name} group={group} />
              ))}
            </>
          );
        }}
      </Shown>
    </section>
  );
}

/** Tools that may change or reach the same: trusted together, or one by one. */
function Group({ group }: { group: Waiting[] }) {
  const give = useAction((tools: Waiting[]) =>
    data(api.POST("/trust", { body: { tools: Object.fromEntries(tools.map(({ name, digest }) => [name, digest])) } })),
  );
  const reasons = group[0]?.reasons ?? [];
  return (
    <div className="card stack">
      <div className="ends">
        <Bullets of={reasons.length === 0 ? [t("trust.reads")] : reasons} />
        {group.length > 1 && <Sure label={t("trust.all", { n: group.length })} disabled={give.isPending} act={() => give.mutate(group)} />}
      </div>
      <ul className="stack">
        {group.map((tool) => (
          <li key={tool.name} className="stack">
            <p className="line">
              <strong>{tool.name}</strong> <Badge tone="warn">{t(`trust.${tool.status === "new" ? "new" : "changed"}`)}</Badge>
              {tool.maker !== null && <span className="muted">{plain(tool.maker)}</span>}
              <Sure label={t("trust.give", { name: tool.name })} disabled={give.isPending} act={() => give.mutate([tool])} />
            </p>
            <Fold title={t(tool.status === "new" ? "trust.files" : "trust.diff")}>{() => <TrustFacts tool={tool} />}</Fold>
          </li>
        ))}
      </ul>
    </div>
  );
}

/** What a person looks at before trusting a tool: what it may touch, and its text or what has changed in it. */
export function TrustFacts({ tool }: { tool: Waiting }) {
  return (
    <div className="stack">
      <Bullets of={tool.touches.map(touch)} />
      <DiffLines text={tool.diff} />
    </div>
  );
}
