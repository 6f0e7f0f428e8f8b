/** Short messages about what this person just did, which screen readers read out. */

import { useEffect, useRef, useSyncExternalStore } from "react";
import { Button } from "./small";
import { t } from "../text";

type Notice = { id: number; text: string; undo?: () => void };

let notices: readonly Notice[] = [];
const listeners = new Set<() => void>();
const MOST = 3;
const STAYS_MS = 10_000;
let last = 0;

function set(next: typeof notices): void {
  notices = next;
  for (const listener of listeners) listener();
}

/** Show a message for some seconds, with a button for what takes it back. */
export function announce(text: string, undo?: () => void): void {
  last += 1;
  set([...notices, { id: last, text, undo }].slice(-MOST));
}

function remove(id: number): void {
  set(notices.filter((one) => one.id !== id));
}

function subscribe(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

export function Notices() {
  const shown = useSyncExternalStore(subscribe, () => notices);
  return (
    <div className="notices" role="status">
      {shown.map((one) => (
        <Shown key={one.id} notice={one} />
      ))}
    </div>
  );
}

/** A message, which stays while a person points at it or is in it. */
function Shown({ notice: { id, text, undo } }: { notice: Notice }) {
  const box = useRef<HTMLParagraphElement>(null);
  useEffect(() => {
    const timer = setInterval(() => box.current?.matches(":hover, :focus-within") || remove(id), STAYS_MS);
    return () => clearInterval(timer);
  }, [id]);
  const act = () => {
    remove(id);
    undo?.();
  };
  return (
    <p ref={box}>
      {text}
      {undo && <Button look="quiet" onClick={act}>{t("notice.undo")}</Button>}
      <Button look="quiet" onClick={() => remove(id)}>{t("palette.close")}</Button>
    </p>
  );
}
