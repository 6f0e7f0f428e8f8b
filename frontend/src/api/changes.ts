/** Reads again what changes on the server, by whatever process: one stream of events for the whole page. */

import { type QueryClient, useQueryClient } from "@tanstack/react-query";
import { useEffect } from "react";
import { send } from "./client";
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

/** Keep what is shown as it is on the server, also after a lost connection. */
export function useChanges(): void {
  const client = useQueryClient();
  useEffect(() => {
    const ending = new AbortController();
    void follow(client, ending.signal);
    return () => ending.abort();
  }, [client]);
}

async function follow(client: QueryClient, signal: AbortSignal): Promise<void> {
  let last = "";
  while (!signal.aborted) {
    try {
      const answer = await send("/events", { signal, headers: last === "" ? {} : { "last-event-id": last } });
      if (answer.status === 401) return;
      for await (const { id, event } of eventsOf(answer)) {
        // The first ones are of what the page has just read.
        if (last !== "") refresh(client, event);
        if (id !== "") last = id;
      }
    } catch {
      if (signal.aborted) return;
    }
    await new Promise((resolve) => setTimeout(resolve, AGAIN_MS));
  }
}

function refresh(client: QueryClient, topic: string): void {
  for (const key of SHOWN[topic] ?? []) void client.invalidateQueries({ queryKey: [key] });
}
