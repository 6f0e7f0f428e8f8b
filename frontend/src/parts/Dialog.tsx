import { type ReactNode, useEffect, useRef } from "react";
import { t } from "../text";

type Props = { title: string; close: () => void; children: ReactNode };

/** A window above the page, which Esc closes. */
export function Dialog({ title, close, children }: Props) {
  const dialog = useRef<HTMLDialogElement>(null);
  useEffect(() => dialog.current?.showModal(), []);
  return (
    <dialog ref={dialog} className="window" aria-label={title} onClose={close}>
      <header>
        <h2>{title}</h2>
        <button type="button" className="button quiet" onClick={close}>
          {t("palette.close")}
        </button>
      </header>
      {children}
    </dialog>
  );
}
