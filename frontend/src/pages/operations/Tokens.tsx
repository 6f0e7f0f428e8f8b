import { useState } from "react";
import { api, data } from "../../api/client";
import {
  announce, Badge, Button, Check, Choice, chosenAfter, copy, Empty, Form, Line, Row, Rows, Send, Shown, Sure, Until,
  useAction, useRead,
} from "../../parts";
import { t } from "../../text";
import { listOf } from "./lists";

const SCOPES = ["read", "invoke", "approve", "admin"] as const;
type Scope = (typeof SCOPES)[number];
const DAYS = ["1", "30", "365", "0"] as const;
const DAY_S = 86_400;

/** The tokens of programs: made, shown once, revoked. */
export function Tokens() {
  const tokens = useRead(["tokens"], () => api.GET("/tokens"));
  const revoke = useAction((tokenName: string) => data(api.DELETE("/tokens/{tokenName}", { params: { path: { tokenName } } })), {
    done: (_, name) => announce(t("tokens.revoked", { name })),
  });
  return (
    <>
      <NewToken />
      <Shown query={tokens}>
        {({ tokens: found }) => (
          <Rows of={found} none={<Empty title={t("tokens.none")} hint={t("tokens.none.hint")} />}>
            {({ name, scopes, tools, owner, expires }) => (
              <Row
                key={name}
                title={name}
                marks={scopes.map((scope) => <Badge key={scope}>{scope}</Badge>)}
                facts={[owner, tools === null ? t("tokens.all") : tools.join(", "), <Until key="until" moment={expires} />]}
                end={<Sure label={t("tokens.revoke")} disabled={revoke.isPending} act={() => revoke.mutate(name)} />}
              />
            )}
          </Rows>
        )}
      </Shown>
    </>
  );
}

function NewToken() {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<ReadonlySet<Scope>>(new Set(["read", "invoke"]));
  const [tools, setTools] = useState("");
  const [owner, setOwner] = useState("");
  const [days, setDays] = useState<(typeof DAYS)[number]>("30");
  const { mutate, data: made, error, isPending } = useAction(
    () => {
      const patterns = listOf(tools);
      const body = {
        name,
        scopes: [...scopes],
        tools: patterns.length === 0 ? null : patterns,
        owner: owner || undefined,
        expiresInS: days === "0" ? undefined : Number(days) * DAY_S,
      };
      return data(api.POST("/tokens", { body }));
    },
    { done: () => setName(""), refused: null },
  );
  return (
    <Form className="card stack" title={t("tokens.new")} submit={mutate}>
      <div className="fields">
        {/* A new field, as an emptied one counts as wrong. */}
        <Line key={made?.name} label={t("tools.sort.name")} required value={name} change={setName} />
        <Line label={t("tokens.tools")} value={tools} change={setTools} />
        <Line label={t("tokens.owner")} value={owner} change={setOwner} />
        <Choice label={t("tokens.ends")} value={days} change={setDays} of={DAYS} text={(one) => t(`tokens.ends.${one}`)} />
      </div>
      <fieldset>
        <legend>{t("tokens.scopes")}</legend>
        <div className="line">
          {SCOPES.map((scope) => (
            <Check key={scope} on={scopes.has(scope)} change={(on) => setScopes(chosenAfter(scopes, scope, on))}>{scope}</Check>
          ))}
        </div>
      </fieldset>
      <Send label={t("tokens.make")} disabled={isPending || scopes.size === 0} error={error} />
      {made !== undefined && (
        <div className="stack once" role="status">
          <p>{t("tokens.once", { name: made.name })}</p>
          <code dir="ltr">{made.token}</code>
          <Button onClick={() => void copy(made.token)}>{t("import.copy")}</Button>
        </div>
      )}
    </Form>
  );
}
