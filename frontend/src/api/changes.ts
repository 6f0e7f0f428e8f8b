/** Reads again what changes on the server, by whatever process: one stream of events for the whole page. */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { send } from "./client";
import { prefix } from "./session";
import { eventsOf, pause } from "./stream";

/** Topic of the server to the first words of the keys of queries that show it. */
const SHOWN: Record<string, readonly string[]> = {
  catalogue: ["tools", "tool", "used", "bundles", "trust", "counts"],
  approvals: ["approvals", "counts"],
  runs: ["runs", "counts"],
  calls: ["calls", "usage", "counts"],
  audit: ["audit", "used"],
};
/** The id of no event: after it, each topic has changed. */
const NONE = "-";
const NAME = `toolcrib events ${prefix}`;

/** What the tab that reads the stream sends to the others. */
type Told = { lost: boolean } | { id: string; topic: string };

/** Keep what is shown as it is on the server, also after a lost connection. Returns true while it is lost. */
export function useChanges(): boolean {
  const client = useQueryClient();
  const [lost, setLost] = useState(false);
  useEffect(() => {
    const ending = new AbortController();
    const { signal } = ending;
    const others = new BroadcastChannel(NAME);
    const seen: Seen = { last: "" };
    const hear = (told: Told) => {
      if ("lost" in told) return setLost(told.lost);
      seen.last = told.id;
      refresh(client, told.topic);
    };
    others.addEventListener("message", ({ data }: MessageEvent<Told>) => hear(data));
    const tell = (told: Told) => {
      hear(told);
      others.postMessage(told);
    };
    const take = () => follow(signal, seen, tell);
    // A browser gives all tabs six connections to a server (HTTP/1.1): one tab reads the stream for all of them.
    // Only addresses that a browser trusts have locks; elsewhere each tab reads its own.
    if (navigator.locks === undefined) void take();
    else void navigator.locks.request(NAME, { signal }, take).catch(() => undefined);
    return () => {
      ending.abort();
      others.close();
    };
  }, [client]);
  return lost;
}

type Seen = { last: string };

async function follow(signal: AbortSignal, seen: Seen, tell: (told: Told) => void): Promise<void> {
  while (!signal.aborted) {
    try {
      const answer = await send("/events", { signal, headers: seen.last === "" ? {} : { "last-event-id": seen.last } });
      if (answer.status === 401) return;
      tell({ lost: false });
      for await (const { id, event } of eventsOf(answer)) {
        // The first ones are of what the page has just read.
        if (seen.last !== "") tell({ id: id || seen.last, topic: event });
        else seen.last = id;
      }
    } catch {
      if (signal.aborted) return;
      tell({ lost: true });
    }
    // What has changed since the page was read is not known.
    if (seen.last === "") seen.last = NONE;
    await pause();
  }
}

function refresh(client: QueryClient, topic: string): void {
  for (const key of SHOWN[topic] ?? []) void client.invalidateQueries({ queryKey: [key] });
}
