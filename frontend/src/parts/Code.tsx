import { useState } from "react";
import { t } from "../text";
import { plain } from "./json";
import { Button } from "./small";

const MOST = 20_000;
const SHORT = 300;

type Props = { text: string; label?: string; className?: string; atEnd?: boolean; lines?: number };

/** A text as it is, of whatever length and content, which a keyboard can scroll; `atEnd` shows its end first. */
export function Code({ text, label, className, atEnd = false, lines = Infinity }: Props) {
  const [whole, setWhole] = useState(false);
  const first = text.slice(0, MOST).split("\n").slice(0, lines).join("\n");
  const cut = !whole && first.length < text.length;
  return (
    <>
      <pre ref={atEnd ? toEnd : null} tabIndex={0} dir="ltr" aria-label={label} className={className}>
        {plain(cut ? first : text)}
      </pre>
      {cut && <Button onClick={() => setWhole(true)}>{t("test.whole", { n: text.length })}</Button>}
    </>
  );
}

const toEnd = (shown: HTMLElement | null) => shown?.scrollTo(0, shown.scrollHeight);

/** A value within a line, or below it if it is long. */
export function Value({ text }: { text: string }) {
  return text.length > SHORT || text.includes("\n") ? <Code text={text} /> : <code>{plain(text)}</code>;
}
