import { Badge } from "../../parts";
import { has, t } from "../../text";

export const STATES = ["queued", "ready", "running", "waiting", "done", "failed", "cancelled"] as const;
export type State = (typeof STATES)[number];
const GOOD = { done: "good", ok: "good", success: "good" } as const;
const BAD = { failed: "bad", discarded: "bad", unknown: "bad", refused: "bad", error: "bad" } as const;
const TONES: Record<string, "good" | "bad" | "warn"> = { ...GOOD, ...BAD, waiting: "warn", pending: "warn" };

/** Return the state of a call that a line of the audit log has: one that was cancelled has not just failed. */
export function loggedState({ status, code }: Record<string, unknown>): string {
  return code === "cancelled" ? code : String(status);
}

/** The state of a run, or of a call, also as the audit log has it; without words for it, as it stands. */
export function StateBadge({ state }: { state: string }) {
  const key = `run.${state}`;
  return <Badge tone={TONES[state] ?? ""}>{has(key) ? t(key) : state}</Badge>;
}
