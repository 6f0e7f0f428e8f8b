/** The text of a run's answer while the model writes it. */

import { useQueryClient } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { type Schemas, send } from "../../api/client";
import { eventsOf, pause } from "../../api/stream";
import { readAnswer } from "../../parts";

/** Return what the model has written of its next answer; what is stored of the run is read again as it changes. */
export function useAnswer(runId: string, active: boolean): string {
  const [text, setText] = useState("");
  const client = useQueryClient();
  useEffect(() => {
    if (!active) return;
    const ending = new AbortController();
    const follow = async () => {
      let last = "";
      while (!ending.signal.aborted) {
        try {
          const headers: Record<string, string> = last === "" ? {} : { "last-event-id": last };
          const answer = await send(`/runs/${runId}/events`, { signal: ending.signal, headers });
          // 204: it has ended, and nothing is new.
          if (!answer.ok || answer.status === 204) break;
          for await (const { id, event, data } of eventsOf(answer)) {
            last = id;
            const said = readAnswer(data) as Schemas["RunEventData"];
            if (said.runId !== runId) continue;
            if (event === "text") setText((known) => known + (said.detail.text ?? ""));
            else {
              await client.invalidateQueries({ queryKey: ["runs", runId] });
              setText("");
            }
          }
        } catch {
          if (ending.signal.aborted) return;
        }
        await pause();
      }
      await client.invalidateQueries({ queryKey: ["runs", runId] });
    };
    void follow();
    return () => ending.abort();
  }, [runId, active, client]);
  return active ? text : "";
}
