import type { Schemas } from "../api/client";
import { t } from "../text";
import { Badge } from "./small";

export type Effect = Schemas["PolicyRule"]["effect"];
const TONES = { allow: "good", ask: "warn", deny: "bad" } as const;

/** A decision of the policy. */
export function EffectBadge({ effect }: { effect: Effect }) {
  return <Badge tone={TONES[effect]}>{t(`policy.${effect}`)}</Badge>;
}
