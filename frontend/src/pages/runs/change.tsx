import { useMutation, useQueryClient } from "@tanstack/react-query";
import { api, data } from "../../api/client";
import { announce } from "../../parts/notices";
import { t } from "../../text";
import type { State } from "./states";

export const ENDED: readonly string[] = ["done", "failed", "cancelled"];

/** The button that cancels a run, or retries one that ended without an answer. */
export function Change({ run: { id, state }, quiet = false }: { run: { id: string; state: State }; quiet?: boolean }) {
  const client = useQueryClient();
  const params = { path: { runId: id } };
  const ended = ENDED.includes(state);
  const { mutate, isPending } = useMutation({
    mutationFn: () =>
      ended
        ? data(api.POST("/runs/{runId}/retry", { params, body: {} }))
        : data(api.POST("/runs/{runId}/cancel", { params })),
    onError: (error) => announce(error.message),
    onSettled: () => client.invalidateQueries({ queryKey: ["runs"] }),
  });
  if (state === "done") return null;
  return (
    <button type="button" className={quiet ? "button quiet" : "button"} disabled={isPending} onClick={() => mutate()}>
      {t(ended ? "run.retry" : "test.cancel")}
    </button>
  );
}
