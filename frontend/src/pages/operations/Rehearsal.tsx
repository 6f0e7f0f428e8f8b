import { useMutation } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import {
  announce, Choice, type Effect, EffectBadge, Failure, Form, JsonLines, Line, plain, readObject, Send, Sure, Table,
  useAction, useSome, When, writeExact,
} from "../../parts";
import { number, t } from "../../text";
import { listOf } from "./lists";

type Rule = Schemas["TriedRule"]["rule"];
const EFFECTS = ["deny", "ask", "allow"] as const;
const DAYS = [1, 7, 30];
const FEW = 50;

/** A rule being written, tried on the calls of the audit log before it is added. */
export function Rehearsal() {
  const [effect, setEffect] = useState<Effect>("ask");
  const [tools, setTools] = useState("");
  const [callers, setCallers] = useState("");
  const [when, setWhen] = useState("");
  const [reason, setReason] = useState("");
  const [days, setDays] = useState(7);
  const read = when.trim() === "" ? null : readObject(when);
  const wrong = read !== null && !("value" in read);
  const { mutate, variables: rule, reset, data: found, error, isPending } = useMutation({
    mutationFn: (written: Rule) => data(api.POST("/policy/try", { body: { rule: written, days } })),
  });
  const submit = () => {
    const parts = { tools: listOf(tools), callers: listOf(callers), reason: reason.trim() };
    mutate({
      effect,
      ...Object.fromEntries(Object.entries(parts).filter(([, part]) => part.length > 0)),
      ...(read !== null && "value" in read ? { when: read.value } : {}),
    });
  };
  return (
    <Form className="card stack" title={t("policy.try")} submit={submit}>
      <p className="muted">{t("policy.try.about")}</p>
      <div className="fields">
        <Choice label={t("policy.effect")} value={effect} change={setEffect} of={EFFECTS} text={(one) => t(`policy.${one}`)} />
        <Line label={t("policy.tools")} value={tools} placeholder="repo_*" change={setTools} />
        <Line label={t("policy.callers")} value={callers} placeholder="mcp:*" change={setCallers} />
        <Line label={t("policy.reason")} value={reason} change={setReason} />
        <Choice label={t("policy.days")} value={days} change={setDays} of={DAYS} />
        <JsonLines label={t("policy.when")} read={read} value={when} change={setWhen} />
      </div>
      <Send label={t("policy.try.do")} disabled={isPending || wrong} error={error} />
      {found !== undefined && rule !== undefined && (
        <Outcome found={found}>
          <Add rule={rule} done={reset} />
        </Outcome>
      )}
    </Form>
  );
}

/** The button that adds the rule that was tried, whatever the form says by now. */
function Add({ rule, done }: { rule: Rule; done: () => void }) {
  const add = useAction(() => data(api.POST("/policy/rules", { body: { rule } })), {
    done: ({ inForce, path }) => {
      announce(t(inForce ? "policy.added" : "policy.added.waits", { path }));
      done();
    },
    refused: null,
  });
  return (
    <>
      <code>{plain(writeExact(rule))}</code>
      <Sure label={t("policy.add")} disabled={add.isPending} act={add.mutate} />
      {add.error !== null && <Failure error={add.error} />}
    </>
  );
}

function Outcome({ found, children }: { found: Schemas["Rehearsal"]; children: ReactNode }) {
  const [shown, more] = useSome(found.matching, FEW);
  return (
    <div role="status" className="stack">
      <p>
        {t("policy.calls", { n: found.calls })} {found.gone > 0 && t("policy.gone", { n: found.gone })}
      </p>
      <Table
        head={[t("policy.decision"), t("policy.now"), t("policy.then")]}
        rows={EFFECTS.map((one) => ({ key: one, cells: [<EffectBadge key={one} effect={one} />, number(found.now[one]), number(found.then[one])] }))}
      />
      {children}
      {found.matching.length === 0 ? (
        <p className="muted">{t("policy.matching.none")}</p>
      ) : (
        <>
          <h3>{t("policy.matching")}</h3>
          <ul className="stack">
            {shown.map((call, index) => (
              <li key={index} className="line long">
                <EffectBadge effect={call.now} /> → <EffectBadge effect={call.then} /> <strong>{call.tool}</strong>
                <span className="muted">{plain(call.caller)}</span>
                <span className="muted">
                  {t("policy.times", { n: call.times })}, <When moment={call.last} />
                </span>
                <code>{call.arguments === null ? t("policy.unknown") : plain(writeExact(call.arguments))}</code>
              </li>
            ))}
          </ul>
          {more}
        </>
      )}
    </div>
  );
}
