import { api, data, type Schemas } from "../../api/client";
import { announce, Badge, Pages, plain, Sure, Until, useAction, usePages, When } from "../../parts";
import { t } from "../../text";

type Grant = Schemas["GrantAnswer"];

/** The decisions in force: calls like these run, or are refused, without another question. */
export function Grants() {
  const pages = usePages(["approvals", "grants"], (pageToken) => data(api.GET("/grants", { params: { query: { pageToken } } })));
  const revoke = useAction(({ id }: Grant) => data(api.DELETE("/grants/{approvalId}", { params: { path: { approvalId: id } } })), {
    done: (_, { tool }) => announce(t("grants.revoked", { tool })),
  });
  return (
    <section className="stack" aria-labelledby="grants">
      <h2 id="grants">{t("grants.title")}</h2>
      <Pages pages={pages} rows={({ grants }) => grants} none={<p className="muted">{t("grants.none")}</p>}>
        {(grant) => (
          <li key={grant.id} className="row">
            <GrantFacts grant={grant} />
            <Sure label={t("tokens.revoke")} disabled={revoke.isPending} act={() => revoke.mutate(grant)} />
          </li>
        )}
      </Pages>
    </section>
  );
}

function GrantFacts({ grant: { answer, scope, tool, caller, rule, note, decidedBy, decidedAt, endsAt } }: { grant: Grant }) {
  return (
    <div className="row-main">
      <p className="line">
        <span className="row-title">{tool}</span>
        <Badge tone={answer === "approved" ? "good" : "bad"}>{t(`grants.${answer}`)}</Badge>
        <span>{t(`approvals.scope.${scope}`, { tool, rule: plain(rule) })}</span>
      </p>
      {note !== "" && <p>{plain(note)}</p>}
      <p className="line row-facts">
        <span>{t("approvals.by", { caller: plain(caller) })}</span>
        <span>
          {t("grants.by", { by: plain(decidedBy) })} <When moment={decidedAt} />
        </span>
        <span><Until moment={endsAt} /></span>
      </p>
    </div>
  );
}
