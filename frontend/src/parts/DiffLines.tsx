import { plain } from "./json";

const KINDS: Record<string, string> = { "+": "added", "-": "removed", "@": "skipped" };

/** A difference as `diff -u` writes it. */
export function DiffLines({ text }: { text: string }) {
  return (
    <pre tabIndex={0} dir="ltr" className="diff">
      {plain(text)
        .split("\n")
        .map((line, index) => (
          <span key={index} className={KINDS[line[0] ?? ""]}>
            {`${line}\n`}
          </span>
        ))}
    </pre>
  );
}
