import { Badge } from "../../parts/small";
import { t } from "../../text";

export const STATES = ["queued", "ready", "running", "waiting", "done", "failed", "cancelled"] as const;
export type State = (typeof STATES)[number];
const TONES = { done: "good", failed: "bad", waiting: "warn" } as const;

export function StateBadge({ state }: { state: State }) {
  return <Badge tone={TONES[state as keyof typeof TONES] ?? ""}>{t(`run.${state}`)}</Badge>;
}
