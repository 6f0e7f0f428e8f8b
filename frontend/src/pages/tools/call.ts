/** One call that the tester makes: it is stored first, so it outlives a lost connection and this tab. */

import { api, data, errorOf, type Schemas, send, type Tool } from "../../api/client";
import { eventsOf, pause } from "../../api/stream";
import { readAnswer, writeExact } from "../../parts";

export type CallEvent = { kind: string; data: Schemas["EventData"] };
/** The end of a call. */
export type Ended = { result: Schemas["InvokeResult"]; call: Schemas["CallState"] | null };

/** Sends a call with exactly this text as its arguments; returns null if the person withdraws it. */
export type Send = (text: string, dryRun: boolean) => Promise<Response | null>;

/** Return the arguments that a person begins with: those of the first example. */
export const firstArguments = ({ examples }: Pick<Tool, "examples">) => writeExact(examples[0]?.params ?? {}, 2);

/** Return what calls a tool of the catalogue. */
export function callOf({ bundleID, slug, version }: Pick<Tool, "bundleID" | "slug" | "version">): Send {
  const one = `${encodeURIComponent(slug)}/version/${encodeURIComponent(version)}`;
  return (text, dryRun) =>
    send(`/tools/bundles/${bundleID}/tools/${one}/invoke`, {
      method: "POST",
      headers: { "content-type": "application/json", prefer: "respond-async" },
      body: dryRun ? `{"args": ${text}, "dryRun": true}` : `{"args": ${text}}`,
    });
}

/** Follow a call to its end, also over lost connections. Raises ApiError if it is refused. */
export async function follow(
  first: Response,
  { onCall, onEvent }: { onCall?: (id: string) => void; onEvent?: (event: CallEvent) => void } = {},
): Promise<Ended> {
  const body = readAnswer(await first.text());
  if (!first.ok) throw errorOf(body, first.status);
  const begun = body as { callId: string } | Schemas["InvokeResult"];
  if ("ok" in begun) return { result: begun, call: null };
  onCall?.(begun.callId);
  const path = { callId: begun.callId };
  let last = "";
  for (;;) {
    try {
      const headers: Record<string, string> = last === "" ? {} : { "last-event-id": last };
      const answer = await send(`/tools/calls/${begun.callId}/events`, { headers });
      if (!answer.ok) throw errorOf(await answer.json(), answer.status);
      for await (const { id, event, data: sent } of eventsOf(answer)) {
        if (event !== "result") {
          last = id;
          onEvent?.({ kind: event, data: readAnswer(sent) as Schemas["EventData"] });
          continue;
        }
        const call = await data(api.GET("/tools/calls/{callId}", { params: { path } }));
        return { result: readAnswer(sent) as Schemas["InvokeResult"], call };
      }
    } catch (error) {
      // A connection that breaks off is a TypeError; a refusal of the server ends it.
      const lost = error instanceof TypeError || (error instanceof Error && "code" in error && error.code === "offline");
      if (!lost) throw error;
    }
    await pause();
  }
}

export async function cancel(callId: string): Promise<void> {
  await data(api.DELETE("/tools/calls/{callId}", { params: { path: { callId } } }));
}
