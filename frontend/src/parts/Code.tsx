import { plain } from "./json";

/** A text as it is, which a keyboard can scroll. */
export function Code({ text, label, className }: { text: string; label?: string; className?: string }) {
  return (
    <pre tabIndex={0} dir="ltr" aria-label={label} className={className}>
      {plain(text)}
    </pre>
  );
}
