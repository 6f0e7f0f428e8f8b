/** Small parts that every page uses. */

import type { ReactNode } from "react";
import { ago, exact } from "../text";

export function Icon({ path }: { path: string }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

export function Badge({ tone = "", children }: { tone?: "" | "good" | "warn" | "bad"; children: ReactNode }) {
  return <span className={`badge ${tone}`}>{children}</span>;
}

export function When({ moment }: { moment: string }) {
  return (
    <time dateTime={moment} title={exact(moment)}>
      {ago(moment)}
    </time>
  );
}

type SwitchProps = { label: string; on: boolean; disabled?: boolean; onChange: (on: boolean) => void };

/** A checkbox that looks like a switch; its label is for screen readers. */
export function Switch({ label, on, disabled = false, onChange }: SwitchProps) {
  return (
    <input
      type="checkbox"
      role="switch"
      className="switch"
      aria-label={label}
      checked={on}
      disabled={disabled}
      onChange={(event) => onChange(event.target.checked)}
    />
  );
}
