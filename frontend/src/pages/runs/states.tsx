import { Badge } from "../../parts/small";
import { t } from "../../text";

export const STATES = ["queued", "ready", "running", "waiting", "done", "failed", "cancelled"] as const;
export type State = (typeof STATES)[number];
/** What a call of a run may be besides. */
const OTHERS = ["discarded", "unknown", "refused"] as const;
const TONES = { done: "good", failed: "bad", waiting: "warn", discarded: "bad", unknown: "bad", refused: "bad" } as const;

export function StateBadge({ state }: { state: string }) {
  const known = [...STATES, ...OTHERS].find((one) => one === state);
  return <Badge tone={TONES[state as keyof typeof TONES] ?? ""}>{known === undefined ? state : t(`run.${known}`)}</Badge>;
}
