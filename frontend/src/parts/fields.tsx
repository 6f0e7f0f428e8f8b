/** Forms, and fields with their labels. */

import { type ComponentProps, type ReactNode, useId } from "react";
import { number, t } from "../text";
import { announce } from "./notices";
import { Button } from "./small";
import { Failure } from "./states";

type FormProps = { submit: () => void; title?: string } & Pick<ComponentProps<"form">, "className" | "ref" | "noValidate" | "onChange" | "children">;

/** A form, with its title as its heading and name. */
export function Form({ submit, title, children, ...form }: FormProps) {
  return (
    <form
      {...form}
      aria-label={title}
      onSubmit={(event) => {
        event.preventDefault();
        submit();
      }}
    >
      {title !== undefined && <h2>{title}</h2>}
      {children}
    </form>
  );
}

type Common<T> = { label: string; value: T; change: (value: T) => void };

type LineProps = Common<string> & Omit<ComponentProps<"input">, "value"> & { known?: readonly string[] };

/** A line of text; values that are known are suggested. */
export function Line({ label, change, className = "field-stack", known = [], ...input }: LineProps) {
  const id = useId();
  return (
    <label className={className}>
      <span>{label}</span>
      <input {...input} list={known.length > 0 ? id : undefined} onChange={(event) => change(event.target.value)} />
      {known.length > 0 && <datalist id={id}>{known.map((one) => <option key={one} value={one} aria-label={one} />)}</datalist>}
    </label>
  );
}

/** A text of several lines. */
export function Lines({ label, change, className = "field-stack wide", ...area }: Common<string> & Omit<ComponentProps<"textarea">, "value">) {
  return (
    <label className={className}>
      <span>{label}</span>
      <textarea {...area} onChange={(event) => change(event.target.value)} />
    </label>
  );
}

/** A text in JSON, with the place of an error in it. */
export function JsonField({ label, text, wrong, change }: Omit<Common<string>, "value"> & { text: string; wrong: string }) {
  const id = useId();
  return (
    <label className="stack">
      <span>{label}</span>
      <textarea
        value={text}
        rows={Math.min(24, Math.max(8, text.split("\n").length + 1))}
        spellCheck={false}
        aria-invalid={wrong !== ""}
        aria-describedby={id}
        dir="ltr"
        onChange={(event) => change(event.target.value)}
      />
      <span id={id} className="wrong" role="alert">{wrong}</span>
    </label>
  );
}

type ChoiceProps<T> = Common<T> & { of: readonly T[]; text?: (one: T) => string; className?: string };

/** A file of this machine. */
export function FileField({ label, accept, change }: { label: string; accept: string; change: (file: File | null) => void }) {
  return (
    <label className="field-stack">
      <span>{label}</span>
      <input type="file" accept={accept} onChange={(event) => change(event.target.files?.[0] ?? null)} />
    </label>
  );
}

/** One of several values, each shown by its text. */
export function Choice<T extends string | number>({ label, value, change, of, text = String, className = "field-stack" }: ChoiceProps<T>) {
  return (
    <label className={className}>
      <span>{label}</span>
      <select value={value} onChange={(event) => change(of.find((one) => String(one) === event.target.value) ?? value)}>
        {of.map((one) => (
          <option key={one} value={one}>
            {text(one)}
          </option>
        ))}
      </select>
    </label>
  );
}

type CheckProps = { on: boolean; change: (on: boolean) => void; disabled?: boolean; count?: number; children: ReactNode };

/** A box to check, with its meaning and the number of what it chooses. */
export function Check({ on, change, disabled = false, count, children }: CheckProps) {
  return (
    <label className="check">
      <input type="checkbox" checked={on} disabled={disabled} onChange={(event) => change(event.target.checked)} />
      <span>{children}</span>
      {count !== undefined && <output>{number(count)}</output>}
    </label>
  );
}

/** Return what is chosen after a box was changed. */
export function chosenAfter<T>(chosen: ReadonlySet<T>, one: T, on: boolean): Set<T> {
  return new Set(on ? [...chosen, one] : [...chosen].filter((other) => other !== one));
}

/** Buttons of which one is pressed. */
export function Tabs<T extends string>({ value, change, of, text }: Omit<ChoiceProps<T>, "label"> & { text: (one: T) => string }) {
  return (
    <div className="tabs">
      {of.map((one) => (
        <Button key={one} aria-pressed={one === value} onClick={() => change(one)}>{text(one)}</Button>
      ))}
    </div>
  );
}

/** The button that sends a form, and why it was refused. */
export function Send({ label, error = null, ...button }: ComponentProps<typeof Button> & { label: string; error?: unknown }) {
  return (
    <>
      <Button {...button} type="submit" look="primary">
        {label}
      </Button>
      {error !== null && <Failure error={error} />}
    </>
  );
}

/** Put a text on the clipboard. */
export async function copy(text: string): Promise<void> {
  await navigator.clipboard.writeText(text);
  announce(t("test.copied"));
}
