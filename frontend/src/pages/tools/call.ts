/** One call that the tester makes: it is stored first, so it outlives a lost connection and this tab. */

import { api, data, errorOf, type Schemas, send, type Tool } from "../../api/client";
import { eventsOf } from "../../api/stream";

export type Named = Pick<Tool, "bundleID" | "slug" | "version">;
export type CallEvent = { kind: string; data: Schemas["EventData"] };
export type Ended = { result: Schemas["InvokeResult"]; call: Schemas["CallState"] | null };

const AGAIN_MS = 1_000;

/** Make a call with exactly this text as its arguments. Raises ApiError if it is refused. */
async function begin(tool: Named, text: string, dryRun: boolean): Promise<{ callId: string } | Schemas["InvokeResult"]> {
  const version = `${encodeURIComponent(tool.slug)}/version/${encodeURIComponent(tool.version)}`;
  const answer = await send(`/tools/bundles/${tool.bundleID}/tools/${version}/invoke`, {
    method: "POST",
    headers: { "content-type": "application/json", prefer: "respond-async" },
    body: dryRun ? `{"args": ${text}, "dryRun": true}` : `{"args": ${text}}`,
  });
  const body: unknown = await answer.json();
  if (!answer.ok) throw errorOf(body, answer.status);
  return body as { callId: string } | Schemas["InvokeResult"];
}

/** Make a call and follow it to its end, also over lost connections. */
export async function run(
  tool: Named,
  text: string,
  { dryRun, onCall, onEvent }: { dryRun: boolean; onCall: (id: string) => void; onEvent: (event: CallEvent) => void },
): Promise<Ended> {
  const begun = await begin(tool, text, dryRun);
  if ("ok" in begun) return { result: begun, call: null };
  onCall(begun.callId);
  const path = { callId: begun.callId };
  let last = "";
  for (;;) {
    try {
      const headers: Record<string, string> = last === "" ? {} : { "last-event-id": last };
      const answer = await send(`/tools/calls/${begun.callId}/events`, { headers });
      if (!answer.ok) throw errorOf(await answer.json(), answer.status);
      for await (const { id, event, data: sent } of eventsOf(answer)) {
        last = id;
        if (event !== "result") {
          onEvent({ kind: event, data: JSON.parse(sent) as Schemas["EventData"] });
          continue;
        }
        const call = await data(api.GET("/tools/calls/{callId}", { params: { path } }));
        return { result: JSON.parse(sent) as Schemas["InvokeResult"], call };
      }
    } catch (error) {
      // A connection that breaks off is a TypeError; a refusal of the server ends it.
      const lost = error instanceof TypeError || (error instanceof Error && "code" in error && error.code === "offline");
      if (!lost) throw error;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

export async function cancel(callId: string): Promise<void> {
  await data(api.DELETE("/tools/calls/{callId}", { params: { path: { callId } } }));
}
