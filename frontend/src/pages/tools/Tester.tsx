import { useQueryClient } from "@tanstack/react-query";
import { lazy, type ReactNode, Suspense, useId, useState } from "react";
import { ApiError, type Tool } from "../../api/client";
import { announce, Button, copy, Failure, Form, type Grant, JsonField, Loading, readObject, SetSecret, Tabs, Watched, writeExact } from "../../parts";
import { t } from "../../text";
import { type CallEvent, cancel, type Ended, follow, type Send } from "./call";
import { COPIES } from "./copies";
import { toolPath } from "./paths";
import { Progress, Result } from "./Result";
import "./tester.css";

const SchemaForm = lazy(() => import("../../parts/SchemaForm/SchemaForm"));
const Problems = lazy(() => import("../../parts/SchemaForm/Problems"));

type State = { kind: "idle"; lacks?: string[] } | { kind: "running"; call: string } | { kind: "ended"; ended: Ended } | { kind: "refused"; error: unknown };

type Props = {
  schema: Record<string, unknown>;
  start: string;
  call: Send;
  /** The tool of the catalogue, whose call can be copied. */
  tool?: Tool;
  /** Runs it observed, and takes the permissions that the run needed. */
  watch?: { call: (text: string) => Promise<Response | null>; label: string; take: (grants: Grant[]) => void };
  /** The window that asks before a call begins. */
  question: ReactNode;
};

/** A form and JSON for one value, and the answer of the call. The text is the value: exactly it is sent. */
export function Tester({ schema, start, call, tool, watch, question }: Props) {
  const [text, setText] = useState(start);
  const [mode, setMode] = useState<"form" | "json">("form");
  const [state, setState] = useState<State>({ kind: "idle" });
  const [events, setEvents] = useState<CallEvent[]>([]);
  const queries = useQueryClient();

  const read = readObject(text);
  const valid = "value" in read;
  const running = state.kind === "running";
  const problem = errorIn(state);
  const missing = state.kind === "idle" ? (state.lacks ?? []) : problem?.code === "secret_missing" ? (problem.details?.missing as string[]) : [];

  const makeCall = async (begin: () => Promise<Response | null>) => {
    setEvents([]);
    setState({ kind: "running", call: "" });
    try {
      const answer = await begin();
      if (answer === null) return setState({ kind: "idle" });
      const ended = await follow(answer, {
        onCall: (id) => setState({ kind: "running", call: id }),
        onEvent: (event) => setEvents((known) => [...known, event]),
      });
      setState({ kind: "ended", ended });
    } catch (error) {
      setState({ kind: "refused", error });
    }
    for (const shown of ["audit", "usage", "used"]) void queries.invalidateQueries({ queryKey: [shown] });
  };

  return (
    <section className="card tester" aria-labelledby="tester">
      <div className="ends tester-head">
        <h2 id="tester">{t("tool.try")}</h2>
        <Tabs value={mode} change={setMode} of={["form", "json"] as const} text={(one) => t(`test.${one}`)} />
      </div>
      <Form className="stack tester-input" noValidate submit={() => valid && !running && void makeCall(() => call(text, false))}>
        <Suspense fallback={<Loading />}>
          {mode === "form" && valid ? (
            <SchemaForm schema={schema} value={read.value} refused={problem?.violations} onChange={(value) => setText(writeExact(value, 2))} />
          ) : (
            <>
              <JsonField label={t("test.json.label")} text={text} wrong={valid ? "" : read.wrong} change={setText} />
              {valid && <Problems schema={schema} value={read.value} refused={problem?.violations} />}
            </>
          )}
        </Suspense>
        <div className="line">
          <Button type="submit" look="primary" disabled={!valid || running}>{t("chat.run")}</Button>
          <Button disabled={!valid || running} onClick={() => void makeCall(() => call(text, true))}>{t("test.dry")}</Button>
          {watch !== undefined && (
            <Button disabled={!valid || running} onClick={() => void makeCall(() => watch.call(text))}>{t("watch.run")}</Button>
          )}
          {valid && tool !== undefined && <Copies tool={tool} text={text} />}
        </div>
      </Form>
      <div className="stack tester-answer" aria-live="polite">
        <h3>{t("test.result")}</h3>
        {state.kind === "idle" && missing.length === 0 && <p className="muted">{t(state.lacks === undefined ? "test.result.none" : "test.result.again")}</p>}
        {state.kind === "running" && !question && (
          <p className="line">
            {t("test.running")}
            <Button disabled={state.call === ""} onClick={() => void cancel(state.call).catch((error: unknown) => announce(String(error)))}>
              {t("test.cancel")}
            </Button>
          </p>
        )}
        {state.kind === "ended" && <Result ended={state.ended} />}
        {/* A result has the whole output; without one, what came stays. */}
        {!(state.kind === "ended" && state.ended.result.ok) && <Progress events={events} running={running} />}
        {watch !== undefined && state.kind === "ended" && state.ended.result.watched !== undefined && (
          <Watched watched={state.ended.result.watched} label={watch.label} take={watch.take} />
        )}
        {state.kind === "refused" && <Failure error={state.error} />}
        {missing.map((name) => (
          <SetSecret key={name} name={name} done={() => setState({ kind: "idle", lacks: missing.filter((other) => other !== name) })} />
        ))}
      </div>
      {question}
    </section>
  );
}

function errorIn(state: State): Pick<ApiError, "code" | "violations" | "details"> | undefined {
  if (state.kind === "ended") return state.ended.result.error;
  return state.kind === "refused" && state.error instanceof ApiError ? state.error : undefined;
}

function Copies({ tool, text }: { tool: Tool; text: string }) {
  const menu = useId();
  const link = `${location.origin}${location.pathname}#${toolPath(tool)}?args=${encodeURIComponent(text)}`;
  return (
    <>
      <Button popoverTarget={menu}>{t("test.copy")}</Button>
      <div id={menu} popover="auto" className="copies">
        {Object.entries(COPIES).map(([name, make]) => (
          <Button key={name} onClick={() => void copy(make(tool, text))}>{name}</Button>
        ))}
        <Button onClick={() => void copy(link)}>{t("test.link")}</Button>
      </div>
    </>
  );
}
