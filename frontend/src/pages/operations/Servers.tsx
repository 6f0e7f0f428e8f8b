import { type ReactNode, useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { announce, Badge, Bullets, Button, Code, Decide, Dialog, Empty, Fold, plain, Shown, Sure, useAction, useRead } from "../../parts";
import { said, spoken, t } from "../../text";
import { NewServer } from "./NewServer";

type Server = Schemas["ServerAnswer"];
const TONES = { ready: "good", waiting: "bad", "not trusted": "warn", "logging in": "warn", starting: "", stopped: "" } as const;
const SOON = new Set(["starting", "logging in"]);
const SOON_MS = 1_000;
const LATER_MS = 3_000;

/** The MCP servers of the project: their states, and what may help. */
export function Servers() {
  const servers = useRead(
    ["servers"],
    () => api.GET("/servers"),
    { refetchInterval: ({ state }) => state.data?.servers.some((one) => SOON.has(one.state)) === true ? SOON_MS : LATER_MS },
  );
  return (
    <Shown query={servers}>
      {({ servers: found, wrong, notes }) => (
        <>
          {found.length === 0 && <Empty title={t("servers.none")} hint={t("servers.none.hint")} />}
          {[...Object.entries(wrong), ...Object.entries(notes)].map(([name, reason]) => (
            <p key={`${name} ${reason}`} className="warnings">
              {t("servers.failed", { name, reason: plain(said(reason)) })}
            </p>
          ))}
          <ul className="stack">
            {found.map((one) => (
              <li key={one.name} className="card stack">
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
      <div className="line">
        <h2>{server.name}</h2>
        <Badge tone={TONES[server.state]}>{t(`servers.${server.state}`)}</Badge>
        <Actions server={server} />
      </div>
      <code>{plain(server.where)}</code>
      <p className="line row-facts">
        {waiting.length > 0 && <span>{t("servers.waits", { n: waiting.length })}</span>}
        <span>{t("servers.starts", { n: server.starts })}</span>
        {server.protocol !== null && <span>MCP {server.protocol}</span>}
        {server.sandbox !== null && <span>{server.sandbox}</span>}
      </p>
      {server.state === "not trusted" && <p className="warnings">{t("servers.trust")}</p>}
      {server.error !== null && (
        <div className="stack problem">
          <p>{plain(spoken(server.error.code, server.error.message))}</p>
          {server.error.hint !== null && <p>{plain(said(server.error.hint))}</p>}
        </div>
      )}
      <Lines title={t("servers.tools", { n: server.tools.length })} lines={server.tools} />
      <Lines title={t("servers.waits", { n: waiting.length })} lines={waiting.map(([, why]) => why)} />
      <Lines title={t("servers.unusable")} lines={server.unusable} />
      <Lines title={t("servers.grants")} lines={server.grants} />
      {server.stderr !== "" && (
        <Fold title={t("servers.log")} open={server.error !== null}>{() => <Code text={server.stderr} atEnd />}</Fold>
      )}
    </>
  );
}

function Lines({ title, lines }: { title: string; lines: string[] }) {
  return lines.length > 0 && <Fold title={title}>{() => <Bullets of={lines} />}</Fold>;
}

function Actions({ server: { name, state, transport } }: { server: Server }) {
  const path = { server: name };
  const [hosts, setHosts] = useState<string[]>([]);
  const refused = (error: Error) => t("servers.failed", { name, reason: error.message });
  const restart = useAction(() => data(api.POST("/servers/{server}/restart", { params: { path } })), { refused });
  const login = useAction(
    (allowed: string[]) => {
      setHosts(allowed);
      return data(api.POST("/servers/{server}/login", { params: { path }, body: { hosts: allowed } }));
    },
    { done: ({ address, host }) => address === null && host === null && announce(t("servers.login.done", { name })), refused },
  );
  const logout = useAction(() => data(api.DELETE("/servers/{server}/login", { params: { path } })), {
    done: ({ loggedOut }) => announce(t(loggedOut ? "servers.logout.done" : "servers.logout.none", { name })),
    refused,
  });
  const next = login.data;
  if (state === "not trusted") return <Removal name={name} refused={refused} />;
  return (
    <div className="line end">
      {next?.address != null && state === "logging in" && (
        <a className="button primary" href={next.address} target="_blank" rel="noreferrer">
          {t("servers.login.open", { name })}
        </a>
      )}
      {next?.host != null && (
        <>
          <span>{t("servers.login.host", { name, host: next.host })}</span>
          <Button onClick={() => login.mutate([...hosts, next.host ?? ""])}>{t("servers.login.allow", { host: next.host })}</Button>
        </>
      )}
      {transport !== "stdio" && (
        <>
          <Button disabled={login.isPending} onClick={() => login.mutate(hosts)}>{t("servers.login")}</Button>
          <Sure label={t("app.logout")} disabled={logout.isPending} act={logout.mutate} />
        </>
      )}
      {transport === "stdio" && (
        <Opens label={t("servers.watch")} title={t("servers.watch.title", { name })}>
          {(close) => <NewServer old={name} done={close} />}
        </Opens>
      )}
      <Removal name={name} refused={refused} />
      <Button disabled={restart.isPending} onClick={() => restart.mutate()}>{t("servers.restart")}</Button>
    </div>
  );
}

/** The button that removes a server, after its consequences were read. */
function Removal({ name, refused }: { name: string; refused: (error: Error) => string }) {
  const { mutate, isPending } = useAction<void, Schemas["ServerRemoved"]>(
    () => data(api.DELETE("/servers/{server}", { params: { path: { server: name } } })),
    { done: ({ file, left }) => announce(left ?? t("servers.removed", { name, file })), refused },
  );
  return (
    <Opens label={t("secrets.remove")} title={t("servers.remove", { name })}>
      {(close) => (
        <>
          <Bullets of={[t("servers.remove.tools"), t("servers.remove.gone"), t("servers.remove.again")]} />
          <Decide label={t("secrets.remove")} busy={isPending} act={() => mutate(undefined, { onSettled: close })} close={close} />
        </>
      )}
    </Opens>
  );
}

/** A button that opens a window. */
function Opens({ label, title, children }: { label: string; title: string; children: (close: () => void) => ReactNode }) {
  const [open, setOpen] = useState(false);
  const close = () => setOpen(false);
  return (
    <>
      <Button onClick={() => setOpen(true)}>{label}</Button>
      {open && <Dialog title={title} close={close}>{children(close)}</Dialog>}
    </>
  );
}
