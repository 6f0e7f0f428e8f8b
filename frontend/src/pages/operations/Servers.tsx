import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Code } from "../../parts/Code";
import { plain } from "../../parts/json";
import { announce } from "../../parts/notices";
import { Badge } from "../../parts/small";
import { Sure } from "../../parts/Sure";
import { Empty, Shown } from "../../parts/states";
import { t } from "../../text";
import { NewServer } from "./NewServer";

type Server = Schemas["ServerAnswer"];
const TONES = { ready: "good", waiting: "bad", "not trusted": "warn", starting: "", stopped: "" } as const;
const SOON_MS = 1_000;
const LATER_MS = 10_000;

/** The MCP servers of the project: their states, and what may help. */
export function Servers() {
  const servers = useQuery({
    queryKey: ["servers"],
    queryFn: () => data(api.GET("/servers")),
    refetchInterval: ({ state }) =>
      state.data?.servers.some((one) => one.state === "starting") === true ? SOON_MS : LATER_MS,
  });
  return (
    <Shown query={servers}>
      {({ servers: found, wrong, notes }) => (
        <>
          {found.length === 0 && <Empty title={t("servers.none")} hint={t("servers.none.hint")} />}
          {[...Object.entries(wrong), ...Object.entries(notes)].map(([name, reason]) => (
            <p key={`${name} ${reason}`} className="warnings">
              {t("servers.failed", { name, reason: plain(reason) })}
            </p>
          ))}
          <ul className="cards">
            {found.map((one) => (
              <li key={one.name} className="card entry">
                <ServerCard server={one} />
              </li>
            ))}
          </ul>
          <NewServer />
        </>
      )}
    </Shown>
  );
}

function ServerCard({ server }: { server: Server }) {
  const waiting = Object.entries(server.waiting);
  return (
    <>
      <div className="entry-head">
        <h2>{server.name}</h2>
        <Badge tone={TONES[server.state]}>{t(`servers.${server.state}`)}</Badge>
        <Actions server={server} />
      </div>
      <code>{plain(server.where)}</code>
      <p className="row-facts">
        {waiting.length > 0 && <span>{t("servers.waits", { n: waiting.length })}</span>}
        <span>{t("servers.starts", { n: server.starts })}</span>
        {server.protocol !== null && <span>MCP {server.protocol}</span>}
        {server.sandbox !== null && <span>{server.sandbox}</span>}
      </p>
      {server.state === "not trusted" && <p className="warnings">{t("servers.trust")}</p>}
      {server.error !== null && (
        <div className="problem">
          <p>{plain(server.error.message)}</p>
          {server.error.hint !== null && <p>{plain(server.error.hint)}</p>}
        </div>
      )}
      <Lines title={t("servers.tools", { n: server.tools.length })} lines={server.tools} />
      <Lines title={t("servers.waits", { n: waiting.length })} lines={waiting.map(([, why]) => why)} />
      <Lines title={t("servers.unusable")} lines={server.unusable} />
      <Lines title={t("servers.grants")} lines={server.grants} />
      {server.stderr !== "" && (
        <details open={server.error !== null}>
          <summary>{t("servers.log")}</summary>
          <Code text={server.stderr} />
        </details>
      )}
    </>
  );
}

function Lines({ title, lines }: { title: string; lines: string[] }) {
  if (lines.length === 0) return null;
  return (
    <details>
      <summary>{title}</summary>
      <ul className="bullets">
        {lines.map((line) => (
          <li key={line}>{plain(line)}</li>
        ))}
      </ul>
    </details>
  );
}

function Actions({ server: { name, state, transport } }: { server: Server }) {
  const client = useQueryClient();
  const path = { server: name };
  const [hosts, setHosts] = useState<string[]>([]);
  const more = {
    onError: (error: Error) => announce(t("servers.failed", { name, reason: error.message })),
    onSettled: () => client.invalidateQueries({ queryKey: ["servers"] }),
  };
  const restart = useMutation({
    mutationFn: () => data(api.POST("/servers/{server}/restart", { params: { path } })),
    ...more,
  });
  const login = useMutation({
    mutationFn: (allowed: string[]) => {
      setHosts(allowed);
      return data(api.POST("/servers/{server}/login", { params: { path }, body: { hosts: allowed } }));
    },
    onSuccess: ({ address, host }) =>
      address === null && host === null && announce(t("servers.login.done", { name })),
    ...more,
  });
  const logout = useMutation({
    mutationFn: () => data(api.DELETE("/servers/{server}/login", { params: { path } })),
    onSuccess: ({ loggedOut }) => announce(t(loggedOut ? "servers.logout.done" : "servers.logout.none", { name })),
    ...more,
  });
  const next = login.data;
  if (state === "not trusted") return null;
  return (
    <div className="entry-actions">
      {next?.address != null && (
        <a className="button primary" href={next.address} target="_blank" rel="noreferrer">
          {t("servers.login.open", { name })}
        </a>
      )}
      {next?.host != null && (
        <>
          <span>{t("servers.login.host", { name, host: next.host })}</span>
          <button type="button" className="button" onClick={() => login.mutate([...hosts, next.host ?? ""])}>
            {t("servers.login.allow", { host: next.host })}
          </button>
        </>
      )}
      {transport !== "stdio" && (
        <>
          <button type="button" className="button" disabled={login.isPending} onClick={() => login.mutate(hosts)}>
            {t("servers.login")}
          </button>
          <Sure label={t("servers.logout")} disabled={logout.isPending} act={logout.mutate} />
        </>
      )}
      <button type="button" className="button" disabled={restart.isPending} onClick={() => restart.mutate()}>
        {t("servers.restart")}
      </button>
    </div>
  );
}
