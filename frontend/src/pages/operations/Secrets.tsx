import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Form } from "../../parts/fields";
import { plain } from "../../parts/json";
import { announce } from "../../parts/notices";
import { Badge } from "../../parts/small";
import { Empty, Shown } from "../../parts/states";
import { Sure } from "../../parts/Sure";
import { t } from "../../text";

const TONES = { resolved: "good", missing: "warn", unreadable: "bad" } as const;

/** The secrets that tools declare: their states, and fields to set them. No value is ever shown. */
export function Secrets() {
  const secrets = useQuery({ queryKey: ["secrets"], queryFn: () => data(api.GET("/secrets")) });
  return (
    <Shown query={secrets}>
      {({ secrets: found }) =>
        found.length === 0 ? (
          <Empty title={t("secrets.none")} />
        ) : (
          <>
            <p className="muted">{t("secrets.about")}</p>
            <ul className="rows">
              {found.map((one) => (
                <li key={one.name} className="row">
                  <Secret secret={one} />
                </li>
              ))}
            </ul>
          </>
        )
      }
    </Shown>
  );
}

function Secret({ secret }: { secret: Schemas["SecretState"] }) {
  const { name, state, source, reason, hint, short, own, tools, hosts } = secret;
  const [value, setValue] = useState("");
  const client = useQueryClient();
  const params = { path: { secretName: name } };
  const { mutate, isPending } = useMutation({
    mutationFn: async (set: boolean) => {
      if (set) await data(api.PUT("/secrets/{secretName}", { params, body: { value } }));
      else await data(api.DELETE("/secrets/{secretName}", { params }));
    },
    onSuccess: (_, set) => {
      setValue("");
      announce(t(set ? "secrets.done" : "secrets.removed", { name }));
    },
    onError: (error) => announce(error.message),
    onSettled: () => client.invalidateQueries({ queryKey: ["secrets"] }),
  });
  const wanted = tools.map((tool) => (tool.required ? tool.name : t("secrets.optional", { tool: tool.name })));
  return (
    <>
      <div className="row-main">
        <p className="entry-head">
          <code className="row-title">{name}</code>
          <Badge tone={TONES[state]}>{t(`secrets.${state}`)}</Badge>
          {source !== null && <span className="muted">{t("secrets.from", { source: plain(source) })}</span>}
        </p>
        <p className="row-facts">
          <span>{t("secrets.tools", { tools: wanted.join(", ") })}</span>
          {hosts.length > 0 && <span>{t("secrets.hosts", { hosts: hosts.join(", ") })}</span>}
        </p>
        {short && <p className="wrong">{t("secrets.short")}</p>}
        {reason !== null && <p className="wrong">{plain(`${reason}. ${hint ?? ""}`)}</p>}
      </div>
      <Form className="entry-form" submit={() => mutate(true)}>
        <input
          type="password"
          autoComplete="off"
          aria-label={t("secrets.value", { name })}
          placeholder={t("secrets.value", { name })}
          value={value}
          onChange={(event) => setValue(event.target.value)}
        />
        <button type="submit" className="button" disabled={isPending || value === ""}>
          {t("secrets.set")}
        </button>
        {own && <Sure label={t("secrets.remove")} disabled={isPending} act={() => mutate(false)} />}
      </Form>
    </>
  );
}
