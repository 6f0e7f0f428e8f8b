/** Small parts that every page uses. */

import { type ComponentProps, type ReactNode, useEffect, useEffectEvent, useId, useState } from "react";
import type { Schemas } from "../api/client";
import { ago, exact, said, t } from "../text";
import { plain } from "./json";

export function Icon({ path }: { path: string }) {
  return (
    <svg className="icon" viewBox="0 0 24 24" aria-hidden="true">
      <path d={path} />
    </svg>
  );
}

type ButtonProps = ComponentProps<"button"> & { look?: "" | "primary" | "quiet" };

/** A button. Only with `type="submit"` it sends a form. */
export function Button({ look = "", className = "", ...more }: ButtonProps) {
  return <button type="button" {...more} className={`button ${look} ${className}`} />;
}

export function Badge({ tone = "", children }: { tone?: "" | "good" | "warn" | "bad"; children: ReactNode }) {
  return <span className={`badge ${tone}`}>{children}</span>;
}

export type Effect = Schemas["PolicyRule"]["effect"];
const TONES = { allow: "good", ask: "warn", deny: "bad" } as const;

/** A decision of the policy. */
export function EffectBadge({ effect }: { effect: Effect }) {
  return <Badge tone={TONES[effect]}>{t(`policy.${effect}`)}</Badge>;
}

/** The time until a moment, which runs down. */
export function Left({ moment, ended }: { moment: string; ended: () => void }) {
  const [now, setNow] = useState(Date.now);
  const left = Math.ceil((Date.parse(moment) - now) / 1000);
  const isOver = left <= 0;
  const over = useEffectEvent(ended);
  useEffect(() => {
    if (isOver) return over();
    const timer = setInterval(() => setNow(Date.now()), 1000);
    return () => clearInterval(timer);
  }, [isOver]);
  if (isOver) return t("approvals.expired");
  return (
    <time dateTime={moment} title={exact(moment)}>
      {left > 3600 ? ago(moment) : t("approvals.left", { time: `${Math.floor(left / 60)}:${String(left % 60).padStart(2, "0")}` })}
    </time>
  );
}

export function When({ moment }: { moment: string }) {
  return (
    <time dateTime={moment} title={exact(moment)}>
      {ago(moment)}
    </time>
  );
}

/** The moment at which something ends; null for never. */
export function Until({ moment }: { moment: string | null }) {
  return moment === null ? t("tokens.forever") : <>{t("approvals.expires")} <When moment={moment} /></>;
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

/** A part of a page with its heading. */
export function Card({ title, className = "", children }: { title: string; className?: string; children: ReactNode }) {
  const id = useId();
  return (
    <section className={`card ${className}`} aria-labelledby={id}>
      <h2 id={id}>{title}</h2>
      {children}
    </section>
  );
}

/** Texts, one below the other, with what they hide written out. */
export function Bullets({ of, className = "bullets" }: { of: readonly string[]; className?: string }) {
  if (of.length === 0) return null;
  return (
    <ul className={className}>
      {of.map((one) => (
        <li key={one}>{plain(said(one))}</li>
      ))}
    </ul>
  );
}

type FoldProps = { title: ReactNode; className?: string; open?: boolean; children: () => ReactNode };

/** What is made only when a person opens it. */
export function Fold({ title, className, open: first = false, children }: FoldProps) {
  const [open, setOpen] = useState(first);
  return (
    <details className={className} open={open} onToggle={(event) => setOpen(event.currentTarget.open)}>
      <summary>{title}</summary>
      {open && children()}
    </details>
  );
}

/** Names with their values; one that is null is left out. */
export function Pairs({ of }: { of: Record<string, ReactNode> }) {
  return (
    <dl className="pairs">
      {Object.entries(of).flatMap(([name, value]) => (value === null ? [] : [<dt key={name}>{name}</dt>, <dd key={`${name} value`}>{value}</dd>]))}
    </dl>
  );
}

type RowsProps<T> = { of: readonly T[]; none: ReactNode; className?: string; children: (one: T, index: number) => ReactNode };

/** A list, or what stands in the place of an empty one. */
export function Rows<T>({ of, none, className = "rows", children }: RowsProps<T>) {
  return of.length === 0 ? none : <ul className={className}>{of.map(children)}</ul>;
}
