import { lazy, Suspense, useRef, useState } from "react";
import { announce, Badge, Button, Form, readObject } from "../../parts";
import { t } from "../../text";
import { Progress, Result } from "../tools/Result";
import { type Attached, attached, invoked, useAttached, withOutputs } from "./attached";

const Palette = lazy(() => import("../../parts/Palette"));
/** Lines of an output that are shown at first. */
const FEW = 6;
const TONES = { pending: "", running: "warn", output: "good", failed: "bad" } as const;

/** The message box. `+` adds a tool; `+NAME` as a message runs it without the agent, but not by the arguments of an example. */
export function Composer({ busy, send }: { busy: boolean; send: (prompt: string) => Promise<unknown> }) {
  const [message, setMessage] = useState("");
  const [picking, setPicking] = useState(false);
  const [working, setWorking] = useState(false);
  const tools = useAttached();
  const box = useRef<HTMLTextAreaElement>(null);

  const submit = async () => {
    const called = await invoked(message.trim());
    if (called !== undefined) {
      setMessage("");
      tools.add(called);
      if (message.includes("{") || called.text === "{}") await tools.start(called);
      return;
    }
    const done = await Promise.all(tools.all.map((one) => (one.state === "output" ? one : tools.start(one))));
    // A tool that failed keeps the message here: the person decides.
    if (done.some(({ state }) => state === "failed")) return;
    await send(withOutputs(message.trim(), done));
    setMessage("");
    tools.clear();
  };
  const start = () => {
    if (message.trim() === "" || working || busy) return;
    setWorking(true);
    void submit()
      .catch((error: unknown) => announce(error instanceof Error ? error.message : String(error)))
      .finally(() => {
        setWorking(false);
        box.current?.focus();
      });
  };

  return (
    <Form className="card stack composer" submit={start}>
      {tools.all.length > 0 && (
        <div className="stack chips">
          {tools.all.map((one) => (
            <Chip key={one.key} one={one} tools={tools} />
          ))}
        </div>
      )}
      <div className="composer-line">
        <Button aria-label={t("chat.add")} onClick={() => setPicking(true)}>+</Button>
        <textarea
          ref={box}
          rows={Math.min(10, message.split("\n").length + 1)}
          aria-label={t("chat.message")}
          placeholder={t("chat.message")}
          value={message}
          onChange={(event) => setMessage(event.target.value)}
          onKeyDown={(event) => {
            if (event.key === "+" && message === "") {
              event.preventDefault();
              setPicking(true);
            }
            if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
            event.preventDefault();
            start();
          }}
        />
        <Button type="submit" look="primary" disabled={busy || working || message.trim() === ""}>{t("chat.send")}</Button>
      </div>
      {picking && (
        <Suspense>
          <Palette
            close={() => setPicking(false)}
            pick={(tool) => void attached(tool).then(tools.add, (error: Error) => announce(error.message))}
          />
        </Suspense>
      )}
    </Form>
  );
}

function Chip({ one, tools }: { one: Attached; tools: ReturnType<typeof useAttached> }) {
  const read = readObject(one.text);
  return (
    <div className="chip stack">
      <details open={one.state !== "output"}>
        <summary>
          <code>+{one.tool.name}</code> <Badge tone={TONES[one.state]}>{t(`chat.${one.state}`)}</Badge>
        </summary>
        <textarea
          rows={Math.min(8, one.text.split("\n").length)}
          dir="ltr"
          aria-label={`${one.tool.name}: ${t("recipe.arguments")}`}
          aria-invalid={!("value" in read)}
          value={one.text}
          onChange={(event) => tools.write(one.key, event.target.value)}
        />
      </details>
      {one.state === "running" && <Progress events={one.events ?? []} running />}
      {one.ended !== undefined && <Result ended={one.ended} lines={FEW} />}
      {one.problem !== undefined && <p className="wrong">{one.problem}</p>}
      <p className="line run-actions">
        <Button disabled={one.state === "running" || !("value" in read)} onClick={() => void tools.start(one)}>
          {t(one.state === "pending" ? "chat.run" : "run.retry")}
        </Button>
        <Button look="quiet" onClick={() => tools.remove(one.key)}>{t("chat.remove", { tool: one.tool.name })}</Button>
      </p>
    </div>
  );
}
