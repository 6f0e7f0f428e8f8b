import { type RefObject, useEffect, useRef } from "react";

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
