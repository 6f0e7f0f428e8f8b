import type { ReactNode } from "react";
import { useModal } from "./modal";
import { Button } from "./small";
import { t } from "../text";

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
