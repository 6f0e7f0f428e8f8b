import { Link, useNavigate, useParams, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, data, type Tool } from "../../api/client";
import {
  announce, Bullets, Button, Card, Code, type Grant, Heading, Pairs, plain, SchemaTree, Shown, useRead, When, writeExact,
} from "../../parts";
import { type Key, number, said, t, translated } from "../../text";
import { draftOf, given, nextVersion, textOf } from "../authoring/drafts";
import { useTrusted } from "../authoring/trust";
import { Actions } from "./Actions";
import { Callers } from "./Callers";
import { callOf, firstArguments } from "./call";
import { History } from "./History";
import { wordsOf } from "./paths";
import { Marks } from "./ToolRow";
import { Toggle } from "./Toggle";
import { Tester } from "./Tester";
import { TrustIt } from "./TrustIt";
import "./tool.css";
import { Versions } from "./Versions";

/** One version of a tool: what it takes, what it may touch, who used it, and the tester. */
export function Page() {
  const { bundle = "", slug = "", version = "" } = useParams({ strict: false }) as Record<string, string>;
  const path = { bundleID: bundle, toolSlug: slug, v: version };
  const tool = useRead(["used", path], () => api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}", { params: { path } }));
  return <Shown query={tool}>{(found) => <Whole key={found.toolID} tool={found} />}</Shown>;
}

function Whole({ tool }: { tool: Tool }) {
  const { args } = useSearch({ strict: false }) as { args?: string };
  // A new start for the tester, with these arguments.
  const [start, setStart] = useState({ text: args ?? firstArguments(tool), turn: 0 });
  const [watch, question] = useWatched(tool);
  const { title, about } = translated(tool);
  const use = (text: string) => setStart(({ turn }) => ({ text, turn: turn + 1 }));

  return (
    <div className="tool">
      <header className="line tool-head">
        <Heading text={plain(title)} />
        <Marks tool={tool} />
        <Toggle tool={tool} />
        <p className="muted">{plain(about)}</p>
        <Actions tool={tool} />
      </header>
      <Warnings tool={tool} />
      {tool.trust !== null && <TrustIt tool={tool} />}
      <Tester key={start.turn} tool={tool} schema={tool.argSchema} start={start.text} call={callOf(tool)} watch={watch} question={question} />
      <div className="tool-facts">
        <Card title={t("tool.touches")}>
          <Bullets of={tool.touches.length === 0 ? [t("tool.touches.none")] : tool.touches} />
        </Card>
        <Card title={t("recipe.arguments")}>
          <SchemaTree schema={tool.argSchema} none={t("tool.arguments.none")} />
          <h2 className="second">{t("recipe.answer")}</h2>
          {tool.outputSchema === null ? (
            <p className="muted">
              {tool.outputFormat}. {t("tool.answer.any")}
            </p>
          ) : (
            <SchemaTree schema={tool.outputSchema} none={tool.outputFormat} />
          )}
        </Card>
        <Examples tool={tool} use={use} />
        <About tool={tool} />
        <Versions tool={tool} />
        <Callers tool={tool} />
      </div>
      <History tool={tool} use={use} />
      {typeof tool.impl.manifest === "string" && (
        <details className="card">
          <summary>{t("tool.source")}</summary>
          <Code text={tool.impl.manifest} />
        </details>
      )}
    </div>
  );
}

/** Return what runs a tool observed: the permissions that are taken are opened in the editor as a new version. */
function useWatched(tool: Tool) {
  const navigate = useNavigate();
  const [call, question] = useTrusted({ tool: tool.name }, () => draftOf(tool.name), { isTrusted: tool.trust === null });
  const text = textOf(tool);
  const take = async (grants: Grant[]) => {
    const old = tool.source === "user" ? nextVersion(text ?? "") : (text ?? "");
    given.text = (await data(api.POST("/tools/draft/permissions", { body: { text: old, grants } }))).text;
    await navigate({ to: "/tools/new", search: { from: wordsOf(tool), how: "given" } as never });
  };
  const watch = {
    call: (args: string) => call(args, "watch"),
    label: t(tool.source === "user" ? "watch.version" : "watch.copy"),
    take: (grants: Grant[]) => void take(grants).catch((error: Error) => announce(error.message)),
  };
  return [text === null ? undefined : watch, question] as const;
}

function Warnings({ tool }: { tool: Tool }) {
  const lines = [
    tool.isEnabled ? null : t("tool.disabled"),
    tool.trust === null ? null : t(`tool.trust.${tool.trust}`),
    tool.unavailableBecause === null ? null : t("tool.unavailable", { reason: said(tool.unavailableBecause) }),
    tool.asks === null ? null : t("tool.asks", { reason: said(tool.asks) }),
  ].filter((line) => line !== null);
  return <Bullets className="warnings" of={lines} />;
}

function Examples({ tool, use }: { tool: Tool; use: (text: string) => void }) {
  if (tool.examples.length === 0) return null;
  return (
    <Card title={t("tool.examples")}>
      <ul className="stack examples">
        {tool.examples.map((example, index) => {
          const text = writeExact(example.params ?? {}, 2);
          return (
            <li key={`${index} ${text}`}>
              <span>{typeof example.description === "string" && example.description !== "" ? example.description : t("tool.examples")}</span>
              <Button onClick={() => use(text)}>{t("tool.examples.use")}</Button>
              <pre>{text}</pre>
            </li>
          );
        })}
      </ul>
    </Card>
  );
}

function About({ tool }: { tool: Tool }) {
  return (
    <Card title={t("tool.about")}>
      <Pairs
        of={{
          [t("tool.name")]: <code>{tool.name}</code>,
          [t("tools.filter.bundleIDs")]: `${tool.bundle} · ${t(`source.${tool.source}` as Key)}`,
          [t("tools.filter.kinds")]: tool.kind,
          [t("tool.version")]: tool.version,
          [t("tool.owner")]: tool.owner || null,
          [t("usage.calls")]: <Link to="/operations/usage" search={{ tool: tool.name } as never}>{number(tool.callCount)}</Link>,
          [t("tool.modified")]: <When moment={tool.modifiedAt} />,
        }}
      />
    </Card>
  );
}
