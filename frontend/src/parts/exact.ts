/** JSON whose numbers stay as they are written: 1.10 does, and one of 20 digits. */

/** Stands before the text of a number; a text that begins so gets it once more. */
const MARK = "\u0000";
/** The mark as JSON writes it, with the quotation mark before it. */
const BEGIN = String.raw`"\u0000`;
const TOKEN = /"[^"\\]*(?:\\.[^"\\]*)*"|-?\d[\d.eE+-]*/g;
const NUMBER = /^-?(0|[1-9]\d*)(\.\d+)?([eE][+-]?\d+)?$/;

/** The fields of the API with JSON of tools and people: their numbers stay exact. All others have numbers of the page. */
const EXACT = new Set(
  `args argSchema arguments becomes data details edited entry fields impl inputs manifest meta metadata outputSchema params
  permissions refused rule settings value variables was when would`.split(/\s+/),
);

/** Read JSON. A number that JavaScript would write otherwise becomes a marked text. Raises SyntaxError. */
export function readExact(text: string): unknown {
  const read: unknown = JSON.parse(text);
  const marked = text.replace(TOKEN, (token) => {
    if (token.startsWith('"')) return token.startsWith(BEGIN) ? BEGIN + token.slice(1) : token;
    return String(Number(token)) === token ? token : `${BEGIN}${token}"`;
  });
  return marked === text ? read : JSON.parse(marked);
}

/** Read what the API answers. Raises SyntaxError. */
export function readAnswer(text: string): unknown {
  return withNumbers(readExact(text));
}

function withNumbers(value: unknown): unknown {
  if (typeof value === "string" && value.startsWith(MARK)) {
    const rest = value.slice(MARK.length);
    return rest.startsWith(MARK) ? rest : Number(rest);
  }
  if (typeof value !== "object" || value === null) return value;
  if (Array.isArray(value)) return value.map(withNumbers);
  return Object.fromEntries(Object.entries(value).map(([name, part]) => [name, EXACT.has(name) ? part : withNumbers(part)]));
}

/** Write what `readExact` has read. */
export function writeExact(value: unknown, indent = 0): string {
  return JSON.stringify(value, null, indent).replace(TOKEN, (token) => {
    if (!token.startsWith(BEGIN)) return token;
    const rest = token.slice(BEGIN.length);
    return rest.startsWith(BEGIN.slice(1)) ? `"${rest}` : rest.slice(0, -1);
  });
}

/** Return an exact value for people: a text as it is, anything else as JSON. */
export function shownExact(value: unknown): string {
  return typeof value === "string" && !value.startsWith(MARK) ? value : writeExact(value, 2);
}

/** Return the exact value of what is typed into a field for numbers; what is no number stays a text. */
export function numberOf(typed: string): unknown {
  const text = typed.replace(",", ".").replace(/^(-?)\./, "$10.");
  return NUMBER.test(text) ? readExact(text) : text || undefined;
}

/** Return an exact value as a field for numbers shows it. */
export function fieldText(value: unknown): unknown {
  return typeof value === "string" && value.startsWith(MARK) ? value.slice(1) : value;
}
