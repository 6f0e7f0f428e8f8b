import { api, data, type Schemas } from "../../api/client";
import { Badge, Bullets, DiffLines, Fold, Pages, plain, Sure, useAction, usePages } from "../../parts";
import { said, t, translated } from "../../text";
import { groupsBy } from "./diff";

type Waiting = Schemas["ToolTrust"];

/** Settings and tools that wait for trust, with what they may do and what has changed. */
export function TrustInbox() {
  const pages = usePages(["trust"], (pageToken) => data(api.GET("/trust", { params: { query: { waits: true, pageToken } } })));
  const waiting = pages.data?.pages[0]?.waiting ?? [];
  return (
    <section className="stack" aria-labelledby="trust">
      <h2 id="trust">{t("trust.title")}</h2>
      {waiting.length > 0 && <p className="muted">{t("trust.how")}</p>}
      <ul className="rows">
        {waiting.map(({ key, allows }) => (
          <li key={key} className="row">
            <code>{key}</code> <span>{plain(said(allows))}</span>
          </li>
        ))}
      </ul>
      <Pages
        pages={pages}
        rows={({ tools }) => groupsBy(tools, ({ reasons }) => reasons)}
        none={waiting.length === 0 && <p className="muted">{t("trust.none")}</p>}
      >
        {(group) => <Group key={group[0]?.name} group={group} />}
      </Pages>
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
    <li className="row">
      <div className="row-main stack">
        <div className="ends">
          <Bullets of={reasons.length === 0 ? [t("trust.reads")] : reasons} />
          {group.length > 1 && <Sure label={t("trust.all", { n: group.length })} disabled={give.isPending} act={() => give.mutate(group)} />}
        </div>
        <ul className="stack">
          {group.map((tool) => (
            <li key={tool.name} className="stack">
              <p className="line">
                <Name tool={tool} /> <Badge tone="warn">{t(`trust.${tool.status === "new" ? "new" : "changed"}`)}</Badge>
                {tool.maker !== null && <span className="muted">{plain(tool.maker)}</span>}
                <Sure label={t("trust.give", { name: tool.name })} disabled={give.isPending} act={() => give.mutate([tool])} />
              </p>
              <Fold title={t(tool.status === "new" ? "trust.files" : "trust.diff")}>{() => <TrustFacts tool={tool} />}</Fold>
            </li>
          ))}
        </ul>
      </div>
    </li>
  );
}

function Name({ tool }: { tool: Waiting }) {
  const { title } = translated(tool);
  return (
    <>
      <strong>{title}</strong>
      {title !== tool.name && <code className="muted">{tool.name}</code>}
    </>
  );
}

/** What a person looks at before trusting a tool: what it may touch, and its text or what has changed in it. */
export function TrustFacts({ tool }: { tool: Waiting }) {
  return (
    <div className="stack">
      <Bullets of={tool.touches} />
      <DiffLines text={tool.diff} />
    </div>
  );
}
