/** JSON as a person writes it, with the place of an error; and texts that could hide something. */

import { t } from "../text";
import { readExact } from "./exact";

export type Read = { value: Record<string, unknown> } | { wrong: string };

/** Read the text of a JSON object, exactly; or say where and why it is none. */
export function readObject(text: string): Read {
  let value: unknown;
  try {
    value = readExact(text);
  } catch {
    const good = goodPart(text);
    const before = text.slice(0, good).split("\n");
    const place = { line: before.length, column: (before.at(-1)?.length ?? 0) + 1, found: /^./su.exec(text.slice(good))?.[0] ?? "" };
    return { wrong: t(place.found === "" ? "test.json.end" : "test.json.invalid", place) };
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return { wrong: t("test.json.object") };
  return { value: value as Record<string, unknown> };
}

/** Return the length of the longest beginning that could go on to be JSON: browsers often name no place. */
function goodPart(text: string): number {
  let [good, bad] = [0, text.length + 1];
  while (bad - good > 1) {
    const middle = (good + bad) >> 1;
    if (couldGoOn(text.slice(0, middle))) good = middle;
    else bad = middle;
  }
  return good;
}

function couldGoOn(text: string): boolean {
  try {
    JSON.parse(text);
    return true;
  } catch (error) {
    const place = /position (\d+)/.exec(String(error));
    return /end of|Unterminated/.test(String(error)) || (place !== null && Number(place[1]) >= text.length);
  }
}

// Controls but tab and line feed, and what changes the direction of text or leaves no ink (Unicode TR 36).
// oxlint-disable-next-line no-misleading-character-class
const HIDDEN = /(?![\t\n])[\p{C}\p{Zl}\p{Zp}\u034f\u115f\u1160\u2800\u3164\ufe00-\ufe0e\uffa0\u{e0100}-\u{e01ef}]/gu;

/** Return a text with its hidden characters written out as in JSON, so JSON stays the same value. */
export function plain(text: string): string {
  return text.replace(HIDDEN, (one) => one.split("").map((unit) => `\\u${unit.charCodeAt(0).toString(16).padStart(4, "0")}`).join(""));
}
