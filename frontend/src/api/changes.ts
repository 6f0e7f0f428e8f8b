/** Reads again what changes on the server, by whatever process: one stream of events for the whole page. */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { send } from "./client";
import { prefix } from "./session";
import { eventsOf } from "./stream";

/** Topic of the server to the first words of the keys of queries that show it. */
const SHOWN: Record<string, readonly string[]> = {
  catalogue: ["tools", "tool", "bundles", "trust", "counts"],
  approvals: ["approvals", "counts"],
  runs: ["runs", "counts"],
  calls: ["calls", "usage", "counts"],
  audit: ["audit"],
};
const AGAIN_MS = 1_000;
/** The id of no event: after it, each topic has changed. */
const NONE = "-";
const NAME = `toolcrib events ${prefix}`;

/** Keep what is shown as it is on the server, also after a lost connection. */
export function useChanges(): void {
  const client = useQueryClient();
  useEffect(() => {
    const ending = new AbortController();
    const { signal } = ending;
    const others = new BroadcastChannel(NAME);
    const seen: Seen = { last: "" };
    others.addEventListener("message", ({ data: { id, topic } }: MessageEvent<{ id: string; topic: string }>) => {
      seen.last = id;
      refresh(client, topic);
    });
    const take = () => follow(client, signal, seen, others);
    // A browser gives all tabs six connections to a server (HTTP/1.1): one tab reads the stream for all of them.
    // Only addresses that a browser trusts have locks; elsewhere each tab reads its own.
    if (navigator.locks === undefined) void take();
    else void navigator.locks.request(NAME, { signal }, take).catch(() => undefined);
    return () => {
      ending.abort();
      others.close();
    };
  }, [client]);
}

type Seen = { last: string };

async function follow(client: QueryClient, signal: AbortSignal, seen: Seen, others: BroadcastChannel): Promise<void> {
  while (!signal.aborted) {
    try {
      const answer = await send("/events", { signal, headers: seen.last === "" ? {} : { "last-event-id": seen.last } });
      if (answer.status === 401) return;
      for await (const { id, event } of eventsOf(answer)) {
        // The first ones are of what the page has just read.
        if (seen.last !== "") {
          refresh(client, event);
          others.postMessage({ id, topic: event });
        }
        if (id !== "") seen.last = id;
      }
    } catch {
      if (signal.aborted) return;
    }
    // What has changed since the page was read is not known.
    if (seen.last === "") seen.last = NONE;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function refresh(client: QueryClient, topic: string): void {
  for (const key of SHOWN[topic] ?? []) void client.invalidateQueries({ queryKey: [key] });
}
