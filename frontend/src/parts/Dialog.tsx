import { type ReactNode, type RefObject, useEffect, useRef } from "react";
import { Button } from "./small";
import { t } from "../text";

/** Return the ref of a dialog that is modal while it is there; then the focus goes back to where it was. */
export function useModal(): RefObject<HTMLDialogElement | null> {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => {
    const before = document.activeElement as HTMLElement | null;
    dialog.current?.showModal();
    return () => {
      // Where Esc closed it, Chromium has given the focus back without the cursor: what is typed would be lost.
      before?.blur();
      before?.focus();
    };
  }, []);
  return dialog;
}

type Props = { title: string; close: () => void; children: ReactNode };

type ChoiceProps = { label: string; busy?: boolean; act: () => void; close: () => void };

/** The buttons at the end of a window: to do it, or not. */
export function Decide({ label, busy = false, act, close }: ChoiceProps) {
  return (
    <div className="line">
      <Button look="primary" disabled={busy} onClick={act}>{label}</Button>
      <Button onClick={close}>{t("test.cancel")}</Button>
    </div>
  );
}

/** A window above the page, which Esc closes. */
export function Dialog({ title, close, children }: Props) {
  const dialog = useModal();
  return (
    <dialog ref={dialog} className="window" aria-label={title} onClose={close}>
      <header className="ends">
        <h2>{title}</h2>
        <Button look="quiet" onClick={close}>{t("palette.close")}</Button>
      </header>
      {children}
    </dialog>
  );
}
