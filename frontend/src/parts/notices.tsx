/** Short messages about what this person just did, which screen readers read out. */

import { useSyncExternalStore } from "react";
import { Button } from "./small";
import { t } from "../text";

let notices: readonly { id: number; text: string }[] = [];
const listeners = new Set<() => void>();
const MOST = 3;
let last = 0;

function set(next: typeof notices): void {
  notices = next;
  for (const listener of listeners) listener();
}

export function announce(text: string): void {
  last += 1;
  set([...notices, { id: last, text }].slice(-MOST));
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Notices() {
  const shown = useSyncExternalStore(subscribe, () => notices);
  return (
    <div className="notices" role="status">
      {shown.map(({ id, text }) => (
        <p key={id}>
          {text}
          <Button look="quiet" onClick={() => set(notices.filter((one) => one.id !== id))}>{t("palette.close")}</Button>
        </p>
      ))}
    </div>
  );
}
