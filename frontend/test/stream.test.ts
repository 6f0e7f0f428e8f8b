import { expect, test } from "vitest";
import { eventsOf } from "../src/api/stream";

async function read(...chunks: string[]) {
  const encoded = chunks.map((chunk) => new TextEncoder().encode(chunk));
  const body = new ReadableStream<Uint8Array>({
    start(controller) {
      for (const chunk of encoded) controller.enqueue(chunk);
      controller.close();
    },
  });
  const found = [];
  for await (const event of eventsOf(new Response(body as unknown as BodyInit))) found.push(event);
  return found;
}

test("events are read, wherever the network cuts them", async () => {
  const text = "id: 1\nevent: progress\ndata: {\"done\": 1}\n\n: a comment\n\nid: 2\ndata: a\ndata: b: c\n\n";
  const whole = [
    { id: "1", event: "progress", data: '{"done": 1}' },
    { id: "2", event: "message", data: "a\nb: c" },
  ];
  expect(await read(text)).toEqual(whole);
  expect(await read(...text)).toEqual(whole);
});
