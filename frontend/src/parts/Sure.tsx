import { useState } from "react";
import { t } from "../text";

/** A button for what cannot be undone: it asks once more in its own place. */
export function Sure({ label, disabled = false, act }: { label: string; disabled?: boolean; act: () => void }) {
  const [asked, setAsked] = useState(false);
  return (
    <button
      type="button"
      className={asked ? "button danger" : "button"}
      disabled={disabled}
      onBlur={() => setAsked(false)}
      onClick={() => {
        if (asked) act();
        setAsked(!asked);
      }}
    >
      {asked ? t("ops.sure", { what: label }) : label}
    </button>
  );
}
