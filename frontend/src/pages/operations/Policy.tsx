import { useMutation } from "@tanstack/react-query";
import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Card, EffectBadge, Form, JsonLines, Line, plain, readObject, Send, Shown, useRead, writeExact } from "../../parts";
import { said, t } from "../../text";
import { Rehearsal } from "./Rehearsal";

/** The rules in force, why they decide as they do, and a rule tried on past calls. */
export function Policy() {
  const policy = useRead(["policy"], () => api.GET("/policy"));
  return (
    <>
      <Shown query={policy}>
        {({ rules, default: otherwise }) => (
          <Card className="stack" title={t("policy.rules")}>
            <p className="muted">{t("policy.order")}</p>
            <ol className="stack">
              {rules.map((rule) => (
                <li key={rule.name} className="line">
                  <EffectBadge effect={rule.effect} /> <strong>{plain(rule.name)}</strong>
                  <Conditions rule={rule} />
                  {rule.reason !== undefined && <span className="muted">{plain(rule.reason)}</span>}
                </li>
              ))}
              <li className="line">
                <EffectBadge effect={otherwise} /> {t("policy.default")}
              </li>
            </ol>
          </Card>
        )}
      </Shown>
      <Explain />
      <Rehearsal />
    </>
  );
}

function Conditions({ rule }: { rule: Schemas["PolicyRule"] }) {
  const parts = Object.entries(rule).filter(([key]) => !["name", "effect", "reason"].includes(key));
  if (parts.length === 0) return <span>{t("policy.always")}</span>;
  return (
    <>
      {parts.map(([key, value]) => (
        <code key={key}>
          {key}: {plain(Array.isArray(value) ? value.join(", ") : writeExact(value))}
        </code>
      ))}
    </>
  );
}

function Explain() {
  const [tool, setTool] = useState("");
  const [caller, setCaller] = useState("cli");
  const [text, setText] = useState("{}");
  const read = readObject(text);
  const { mutate, data: found, error, isPending } = useMutation({
    mutationFn: () => {
      const given = "value" in read ? read.value : {};
      return data(api.POST("/policy/explain", { body: { tool, caller, arguments: given } }));
    },
  });
  return (
    <Form className="card stack" title={t("policy.explain")} submit={mutate}>
      <div className="fields">
        <Line label={t("filter.tool")} required value={tool} change={setTool} />
        <Line label={t("filter.caller")} required value={caller} placeholder="token:ci" change={setCaller} />
        <JsonLines label={t("recipe.arguments")} read={read} value={text} change={setText} />
      </div>
      <Send label={t("policy.explain.do")} disabled={isPending || !("value" in read)} error={error} />
      {found !== undefined && error === null && <Explained found={found} />}
    </Form>
  );
}

function Explained({ found }: { found: Schemas["Explanation"] }) {
  return (
    <div role="status" className="stack">
      <p>
        <EffectBadge effect={found.effect} /> {plain(said(found.why))}
      </p>
      {found.arguments === null && <p className="muted">{t("policy.strictest")}</p>}
      {!found.listed && <p className="muted">{t("policy.unlisted")}</p>}
      <ol className="stack">
        {found.steps.map((step) => (
          <li key={step.rule} className="line">
            <EffectBadge effect={step.effect} /> <strong>{plain(step.rule)}</strong>
            <span className="muted">{plain(answerOf(step))}</span>
          </li>
        ))}
      </ol>
    </div>
  );
}

function answerOf({ matched, condition, why }: Schemas["Step"]): string {
  if (matched === true) return t("policy.matches");
  return matched === null ? t("policy.may", { why: said(why) }) : t("policy.no", { condition: condition ?? "", why: said(why) });
}
