/** Server-sent events read by fetch, since an EventSource can send no token (WHATWG HTML, 9.2). */

/** Wait before a stream is read again. */
export const pause = () => new Promise((resolve) => setTimeout(resolve, 1_000));

export type ServerEvent = { id: string; event: string; data: string };

/** Yield the events of an answer as they come. */
export async function* eventsOf(answer: Response): AsyncGenerator<ServerEvent> {
  if (answer.body === null) return;
  const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const parts = (rest + value).split(/\r?\n\r?\n/);
    rest = parts.pop() ?? "";
    for (const part of parts) {
      const read = eventOf(part);
      if (read.data !== "") yield read;
    }
  }
}

function eventOf(block: string): ServerEvent {
  const found: ServerEvent = { id: "", event: "message", data: "" };
  const lines: string[] = [];
  for (const line of block.split(/\r?\n/)) {
    const [name, ...more] = line.split(":");
    const value = more.join(":").replace(/^ /, "");
    if (name === "data") lines.push(value);
    else if (name === "event") found.event = value;
    else if (name === "id") found.id = value;
  }
  return { ...found, data: lines.join("\n") };
}
