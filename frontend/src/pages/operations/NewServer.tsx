import { useRef, useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { announce, Button, Code, Failure, Form, type Grant, Line, Lines, plain, Send, useAction, valuesOf, Watched } from "../../parts";
import { spoken, t } from "../../text";
import { listOf } from "./lists";

type Entry = Schemas["ServerEntry"];
const EMPTY = { name: "", what: "", hosts: "", read: "", write: "", env: "" };

type Props = {
  /** A server that is there already: it is watched, and gets other permissions. */
  old?: string;
  done?: () => void;
};

/** The form that adds a server, after a look at what it starts and may use. */
export function NewServer({ old, done }: Props) {
  const [given, setGiven] = useState({ ...EMPTY, name: old ?? "" });
  const [taken, setTaken] = useState(false);
  const form = useRef<HTMLFormElement>(null);
  const field = (name: keyof typeof EMPTY) => ({
    label: t(`servers.new.${name}`),
    value: given[name],
    change: (value: string) => setGiven({ ...given, [name]: value }),
    dir: "ltr",
  });
  const { mutate, reset, variables: seen, data: found, error, isPending } = useAction(
    (entry: Entry) => data(api.POST("/servers", { body: entry })),
    {
      done: (answer) => {
        if ("digest" in answer) return;
        announce(t(old === undefined ? "servers.new.done" : "servers.changed", { name: answer.name, n: answer.tools.length }));
        setGiven(EMPTY);
        reset();
        done?.();
      },
      refused: null,
    },
  );
  const watch = useAction((entry: Entry) => data(api.POST("/servers/watch", { body: entry })), { refused: null });
  const take = (grants: Grant[]) => {
    const of = (permission: string) => valuesOf(grants, permission).join(", ");
    const hosts = valuesOf(grants, "network").includes("true") ? "*" : of("network.allow");
    setGiven({ ...given, hosts, read: of("fs.read"), write: of("fs.write") });
    setTaken(true);
    watch.reset();
    reset();
    announce(t("watch.taken"));
    form.current?.querySelector("button")?.focus(); // The one that was pressed is gone.
  };
  const submit = () => mutate(old === undefined || taken ? entryOf(given) : { name: old, env: {}, command: [] });
  return (
    <Form ref={form} className={old === undefined ? "card stack" : "stack"} title={old === undefined ? t("servers.new") : undefined} submit={submit}>
      <div className="fields">
        {old === undefined && (
          <>
            <Line {...field("name")} required placeholder="time" />
            <Line {...field("what")} required placeholder="uvx mcp-server-time" />
          </>
        )}
        {(old === undefined || taken) && (
          <>
            <Line {...field("hosts")} placeholder="api.example.com" />
            <Line {...field("read")} placeholder="docs" />
            <Line {...field("write")} />
          </>
        )}
        {old === undefined && <Lines {...field("env")} rows={2} placeholder={"TOKEN=${TIME_TOKEN}"} />}
      </div>
      <Send label={t("servers.new.look")} disabled={isPending} error={error} />
      {found !== undefined && "digest" in found && seen !== undefined && (
        <div role="status" className="stack">
          <Code text={found.lines.join("\n")} />
          {old === undefined && <p className="muted">{t("servers.new.about")}</p>}
          <div className="line">
            {(old === undefined || taken) && (
              <Button look="primary" onClick={() => mutate({ ...seen, trust: found.digest })}>{t("servers.new.add")}</Button>
            )}
            <Button disabled={watch.isPending} onClick={() => watch.mutate({ ...seen, trust: found.digest })}>{t("watch.server")}</Button>
          </div>
          {watch.error !== null && <Failure error={watch.error} />}
          {watch.data?.error != null && <p className="wrong">{plain(spoken(watch.data.error.code, watch.data.error.message))}</p>}
          {watch.data !== undefined && (
            <>
              {watch.data.tools.length > 0 && <p className="muted">{t("watch.tools", { tools: watch.data.tools.join(", ") })}</p>}
              <Watched watched={watch.data.watched} label={t("watch.take")} take={take} />
            </>
          )}
        </div>
      )}
    </Form>
  );
}

function entryOf({ name, what, hosts, read, write, env }: typeof EMPTY): Entry {
  const words = [...what.matchAll(/"([^"]*)"|'([^']*)'|\S+/g)].map(([word, double, single]) => double ?? single ?? word);
  const pairs = env.split("\n").filter((line) => line.includes("=")).map((line) => line.split(/=(.*)/s));
  return {
    name: name.trim(),
    ...(/^https?:/.test(what) ? { url: what.trim() } : { command: words }),
    env: Object.fromEntries(pairs.map(([key = "", value = ""]) => [key.trim(), value])),
    hosts: listOf(hosts),
    read: listOf(read),
    write: listOf(write),
  };
}
