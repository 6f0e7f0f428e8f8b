import { api, data } from "../../api/client";
import { Button, useAction } from "../../parts";
import { t } from "../../text";
import type { State } from "./states";

export const ENDED: readonly string[] = ["done", "failed", "cancelled"];

/** The button that cancels a run, or retries one that ended without an answer. */
export function Change({ run: { id, state }, quiet = false }: { run: { id: string; state: State }; quiet?: boolean }) {
  const params = { path: { runId: id } };
  const ended = ENDED.includes(state);
  const { mutate, isPending } = useAction<void>(() =>
    ended ? data(api.POST("/runs/{runId}/retry", { params, body: {} })) : data(api.POST("/runs/{runId}/cancel", { params })),
  );
  if (state === "done") return null;
  return (
    <Button look={quiet ? "quiet" : ""} disabled={isPending} onClick={() => mutate()}>
      {t(ended ? "run.retry" : "test.cancel")}
    </Button>
  );
}
