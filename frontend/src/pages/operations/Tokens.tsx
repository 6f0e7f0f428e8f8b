import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Choice, copy, Form, Line } from "../../parts/fields";
import { announce } from "../../parts/notices";
import { Badge, When } from "../../parts/small";
import { Empty, Failure, Shown } from "../../parts/states";
import { Sure } from "../../parts/Sure";
import { t } from "../../text";
import { listOf } from "./lists";

const SCOPES = ["read", "invoke", "approve", "admin"] as const;
type Scope = (typeof SCOPES)[number];
const DAYS = ["1", "30", "365", "0"] as const;
const DAY_S = 86_400;

/** The tokens of programs: made, shown once, revoked. */
export function Tokens() {
  const tokens = useQuery({ queryKey: ["tokens"], queryFn: () => data(api.GET("/tokens")) });
  const client = useQueryClient();
  const revoke = useMutation({
    mutationFn: (tokenName: string) => data(api.DELETE("/tokens/{tokenName}", { params: { path: { tokenName } } })),
    onSuccess: (_, name) => announce(t("tokens.revoked", { name })),
    onError: (error) => announce(error.message),
    onSettled: () => client.invalidateQueries({ queryKey: ["tokens"] }),
  });
  return (
    <>
      <NewToken />
      <Shown query={tokens}>
        {({ tokens: found }) =>
          found.length === 0 ? (
            <Empty title={t("tokens.none")} hint={t("tokens.none.hint")} />
          ) : (
            <ul className="rows">
              {found.map((one) => (
                <li key={one.name} className="row">
                  <TokenFacts token={one} />
                  <Sure label={t("tokens.revoke")} disabled={revoke.isPending} act={() => revoke.mutate(one.name)} />
                </li>
              ))}
            </ul>
          )
        }
      </Shown>
    </>
  );
}

function TokenFacts({ token: { name, scopes, tools, owner, expires } }: { token: Schemas["TokenAnswer"] }) {
  return (
    <div className="row-main">
      <p className="entry-head">
        <span className="row-title">{name}</span>
        {scopes.map((scope) => (
          <Badge key={scope}>{scope}</Badge>
        ))}
      </p>
      <p className="row-facts">
        <span>{owner}</span>
        <span>{tools === null ? t("tokens.all") : tools.join(", ")}</span>
        {expires === null ? (
          <span>{t("tokens.forever")}</span>
        ) : (
          <span>
            {t("tokens.expires")} <When moment={expires} />
          </span>
        )}
      </p>
    </div>
  );
}

function NewToken() {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly Scope[]>(["read", "invoke"]);
  const [tools, setTools] = useState("");
  const [days, setDays] = useState<(typeof DAYS)[number]>("30");
  const client = useQueryClient();
  const { mutate, data: made, error, isPending } = useMutation({
    mutationFn: () => {
      const patterns = listOf(tools);
      const body = {
        name,
        scopes: [...scopes],
        tools: patterns.length === 0 ? null : patterns,
        expiresInS: days === "0" ? undefined : Number(days) * DAY_S,
      };
      return data(api.POST("/tokens", { body }));
    },
    onSuccess: () => setName(""),
    onSettled: () => client.invalidateQueries({ queryKey: ["tokens"] }),
  });
  return (
    <Form className="card new" title={t("tokens.new")} submit={mutate}>
      <div className="fields">
        <Line label={t("tokens.name")} required value={name} change={setName} />
        <Line label={t("tokens.tools")} value={tools} change={setTools} />
        <Choice label={t("tokens.ends")} value={days} change={setDays} of={DAYS} text={(one) => t(`tokens.ends.${one}`)} />
      </div>
      <fieldset className="choices-line">
        <legend>{t("tokens.scopes")}</legend>
        {SCOPES.map((scope) => (
          <label key={scope}>
            <input
              type="checkbox"
              checked={scopes.includes(scope)}
              onChange={(event) =>
                setScopes(SCOPES.filter((one) => (one === scope ? event.target.checked : scopes.includes(one))))
              }
            />
            {scope}
          </label>
        ))}
      </fieldset>
      <button type="submit" className="button primary" disabled={isPending || scopes.length === 0}>
        {t("tokens.make")}
      </button>
      {error !== null && <Failure error={error} />}
      {made !== undefined && (
        <div className="once" role="status">
          <p>{t("tokens.once", { name: made.name })}</p>
          <code dir="ltr">{made.token}</code>
          <button type="button" className="button" onClick={() => void copy(made.token)}>
            {t("import.copy")}
          </button>
        </div>
      )}
    </Form>
  );
}
