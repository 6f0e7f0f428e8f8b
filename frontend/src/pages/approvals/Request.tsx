import { useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, ApiError, data, type Schemas } from "../../api/client";
import {
  announce, Badge, Button, Choice, Code, Fold, JsonField, Left, Line, Pairs, plain, readObject, shownExact, useAction, useRead,
  Value, When, writeExact,
} from "../../parts";
import { said, t } from "../../text";
import { Facts } from "./Facts";

type Approval = Schemas["ApprovalAnswer"];
type Scope = Schemas["Approve"]["scope"];
const SCOPES = ["once", "session", "arguments", "rule"] as const;

/** A call that waits, with identical ones of other callers: what it is, and the decision about all of them. */
export function Request({ group }: { group: Approval[] }) {
  const [request] = group;
  return request === undefined ? null : <One request={request} group={group} />;
}

function One({ request, group }: { request: Approval; group: Approval[] }) {
  const own = plain(writeExact(request.arguments, 2));
  const [edited, setEdited] = useState<string | null>(null);
  const [scope, setScope] = useState<NonNullable<Scope>>("once");
  const [note, setNote] = useState("");
  const client = useQueryClient();
  const callers = [...new Set(group.map(({ caller }) => caller))];
  const read = edited === null ? null : readObject(edited);
  const changed = read !== null && "value" in read ? read.value : undefined;
  const wrong = read !== null && "wrong" in read ? read.wrong : "";
  const { mutate, isPending } = useDecision(group);
  // Changed arguments run once only.
  const given = { once: true, session: request.sessionId !== null, arguments: true, rule: request.rule !== "" };
  const scopes = SCOPES.filter((one) => given[one] && (edited === null || one === "once"));

  return (
    <li className="card stack">
      <div className="ends">
        <h2>{request.tool}</h2>
        {group.length > 1 && <Badge tone="warn">{t("approvals.identical", { n: group.length })}</Badge>}
        <span className="muted">
          {t("approvals.expires")} <Left moment={request.expiresAt} ended={() => void client.invalidateQueries()} />
        </span>
      </div>
      <p>{plain(said(request.reason))}</p>
      <p className="line row-facts">
        <span>{t("approvals.by", { caller: plain(callers.join(", ")) })}</span>
        <When moment={request.askedAt} />
        {request.touches.map((one) => (
          <Badge key={one}>{plain(said(one))}</Badge>
        ))}
      </p>
      {edited === null ? (
        <Pairs of={prettyOf(request.arguments)} />
      ) : (
        <JsonField label={t("recipe.arguments")} text={edited} wrong={wrong} change={setEdited} />
      )}
      <Fold title={t("approvals.more")}>
        {() => (
          <div className="stack">
            <Code label={t("test.json")} text={writeExact(request.arguments)} />
            <Details id={request.id} />
          </div>
        )}
      </Fold>
      <div className="stack">
        <div className="fields">
          <Line label={t("approvals.note")} value={note} change={setNote} />
          <Choice label={t("approvals.scope")} value={scope} change={setScope} of={scopes} text={(one) => t(`approvals.scope.${one}`, { tool: request.tool, rule: plain(request.rule) })} />
        </div>
        <div className="line decision-buttons">
          <Button look="primary" disabled={isPending || wrong !== ""} onClick={() => mutate({ scope, note, arguments: changed })}>{t("approvals.approve")}</Button>
          <Button disabled={isPending} onClick={() => mutate({ deny: true, note })}>{t("approvals.deny")}</Button>
          <Button look="quiet" onClick={() => { setEdited(edited === null ? own : null); setScope("once"); }}>
            {edited === null ? t("approvals.edit") : t("approvals.unedit")}
          </Button>
        </div>
      </div>
    </li>
  );
}

/** Return the arguments as a person reads them: texts as they are, other values as JSON. */
function prettyOf(given: Approval["arguments"]) {
  const shown = Object.entries(given).map(([name, value]) => {
    return [plain(name), <Value key={name} text={value === "" ? '""' : shownExact(value)} />];
  });
  return Object.fromEntries(shown);
}

type Decision =
  | { deny: true; note: string }
  | { deny?: never; scope: NonNullable<Scope>; note: string; arguments: Record<string, unknown> | undefined };

/** What decides about exactly what is shown. Where somebody else was faster, the person is told. */
function useDecision(group: Approval[]) {
  const one = async (request: Approval, decision: Decision) => {
    try {
      await decide(request, decision);
      announce(t(decision.deny ? "approvals.denied" : "approvals.approved", { tool: request.tool }));
    } catch (error) {
      const reason = error instanceof ApiError ? [error.message, error.hint].filter(Boolean).join(". ") : String(error);
      announce(t("approvals.refused", { tool: request.tool, reason }));
    }
  };
  return useAction((decision: Decision) => Promise.all(group.map((request) => one(request, decision))), {
    // The buttons go with the card, and a keyboard would begin at the top of the page again. Who has moved on stays there.
    done: () => document.activeElement?.matches("body, :disabled") && document.getElementById("main")?.focus(),
  });
}

function decide({ id, seal }: Approval, decision: Decision) {
  const params = { path: { approvalId: id } };
  if (decision.deny) return data(api.POST("/approvals/{approvalId}/deny", { params, body: { seal, note: decision.note } }));
  return data(api.POST("/approvals/{approvalId}/approve", { params, body: { ...decision, seal } }));
}

function Details({ id }: { id: string }) {
  const shown = useRead(["approvals", id], () => api.GET("/approvals/{approvalId}", { params: { path: { approvalId: id } } }));
  return <Facts query={shown} />;
}
