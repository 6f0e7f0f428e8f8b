/** Forms, and fields with their labels. */

import type { ComponentProps } from "react";
import { t } from "../text";
import { announce } from "./notices";
import { Button } from "./small";
import { Failure } from "./states";

type FormProps = { submit: () => void; title?: string } & Pick<ComponentProps<"form">, "className" | "onChange" | "children">;

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

/** A line of text. */
export function Line({ label, change, className = "field-stack", ...input }: Common<string> & Omit<ComponentProps<"input">, "value">) {
  return (
    <label className={className}>
      <span>{label}</span>
      <input {...input} onChange={(event) => change(event.target.value)} />
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

type ChoiceProps<T> = Common<T> & { of: readonly T[]; text?: (one: T) => string; className?: string };

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
