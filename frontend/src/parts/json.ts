/** JSON as a person writes it, with the place of an error; and texts that could hide something. */

export type Read = { value: Record<string, unknown> } | { line: number; column: number } | { notAnObject: true };

/** Read the text of a JSON object. */
export function readObject(text: string): Read {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (error) {
    return placeOf(String(error), text);
  }
  if (typeof value !== "object" || value === null || Array.isArray(value)) return { notAnObject: true };
  return { value: value as Record<string, unknown> };
}

/** Return the place that the browser's message names: as line and column, as a position, or the end. */
function placeOf(message: string, text: string): { line: number; column: number } {
  const named = /line (\d+) column (\d+)/.exec(message);
  if (named !== null) return { line: Number(named[1]), column: Number(named[2]) };
  const position = /position (\d+)/.exec(message);
  const before = text.slice(0, position === null ? text.length : Number(position[1])).split("\n");
  return { line: before.length, column: (before.at(-1)?.length ?? 0) + 1 };
}

// Controls but tab and line feed, and what changes the direction of text or has no width (Unicode TR 36).
// oxlint-disable-next-line no-control-regex
const HIDDEN = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/g;

/** Return a text with its hidden characters written out. */
export function plain(text: string): string {
  return text.replace(HIDDEN, (one) => `\\u${one.charCodeAt(0).toString(16).padStart(4, "0")}`);
}
