import { api, data, type Schemas } from "../../api/client";
import { announce, Badge, Empty, plain, Row, Rows, SetSecret, Shown, Sure, useAction, useRead } from "../../parts";
import { said, t } from "../../text";

const TONES = { resolved: "good", missing: "warn", unreadable: "bad" } as const;

/** The secrets that tools declare: their states, and fields to set them. No value is ever shown. */
export function Secrets() {
  const secrets = useRead(["secrets"], () => api.GET("/secrets"));
  return (
    <Shown query={secrets}>
      {({ secrets: found }) => (
        <>
          <p className="muted">{t("secrets.about")}</p>
          <Rows of={found} none={<Empty title={t("secrets.none")} />}>
            {(one) => <Secret key={one.name} secret={one} />}
          </Rows>
        </>
      )}
    </Shown>
  );
}

function Secret({ secret }: { secret: Schemas["SecretState"] }) {
  const { name, state, source, reason, hint, short, own, tools, hosts } = secret;
  const remove = useAction(() => data(api.DELETE("/secrets/{secretName}", { params: { path: { secretName: name } } })), {
    done: () => announce(t("secrets.removed", { name })),
  });
  const wanted = tools.map((tool) => (tool.required ? tool.name : t("secrets.optional", { tool: tool.name })));
  return (
    <Row
      title={<code>{name}</code>}
      marks={
        <>
          <Badge tone={TONES[state]}>{t(`secrets.${state}`)}</Badge>
          {source !== null && <span className="muted">{t("secrets.from", { source: plain(said(source)) })}</span>}
        </>
      }
      facts={[t("secrets.tools", { tools: wanted.join(", ") }), hosts.length === 0 ? null : t("secrets.hosts", { hosts: hosts.join(", ") })]}
      end={<SetSecret name={name}>{own && <Sure label={t("secrets.remove")} disabled={remove.isPending} act={() => remove.mutate()} />}</SetSecret>}
    >
      {short && <p className="wrong">{t("secrets.short")}</p>}
      {reason !== null && <p className="wrong">{plain(`${said(reason)}. ${said(hint ?? "")}`)}</p>}
    </Row>
  );
}
