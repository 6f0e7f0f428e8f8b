/** The texts of the page in the person's language. */

import type { ToolItem } from "../api/client";
import type { Key } from "./texts";

export type { Key };

/** `pseudo` is for tests of the layout: English, longer, from right to left. */
export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
type Language = keyof typeof LANGUAGES | "pseudo";

type German = Record<"errors" | "rules" | "phrases", Record<string, string>>;
const LONGEST = 2_000;
const STORED = "toolcrib.language";
export const language = wanted();
const formats = formatsOf(language === "de" ? "de" : "en");
// Nobody loads the texts of another language.
const texts: Record<string, string> = (await (language === "de" ? import("texts:de") : import("texts:en"))).default;
/** The sentences of the server, which speaks English: only who reads German loads them. */
const server: German | null = language === "de" ? (await import("../../../src/toolcrib/serve/german.json")).default : null;
const phrases = Object.entries(server?.phrases ?? {}).map(
  ([english, own]) => [new RegExp(`^${english.split("{}").map(literal).join("(.+?)")}$`, "s"), own] as const,
);

function wanted(): Language {
  const stored = localStorage.getItem(STORED);
  if (stored === "en" || stored === "de" || stored === "pseudo") return stored;
  return navigator.language.startsWith("de") ? "de" : "en";
}

/** Say to the browser which language this is. */
export function applyLanguage(): void {
  document.documentElement.lang = language === "pseudo" ? "ar" : language;
  document.documentElement.dir = language === "pseudo" ? "rtl" : "ltr";
}

export function chooseLanguage(next: Language): void {
  localStorage.setItem(STORED, next);
  location.reload();
}

/** Return a text with its values; the number `n` chooses between one and many. */
export function t(key: Key, values: Record<string, string | number> = {}): string {
  const own = texts[key] ?? key;
  const forms = (language === "pseudo" ? longer(own) : own).split("|");
  const one = typeof values.n !== "number" || formats.plural.select(values.n) === "one";
  const text = (one ? forms[0] : forms[1]) ?? forms[0] ?? "";
  return text.replace(/\{(\w+)\}/g, (whole, name: string) => {
    const value = values[name];
    return typeof value === "number" ? number(value) : (value ?? whole);
  });
}

/** Return True if there is a text of this name. */
export function has(key: string): key is Key {
  return key in texts;
}

/** Return an error, or a finding about a manifest, in words: what its code means, and the server's sentence with the details. */
export function spoken(code: string, message: string): string {
  const meaning = server?.errors[code] ?? server?.rules[code];
  return meaning === undefined ? message : `${meaning} (${said(message)})`;
}

/** Return a sentence of the server in this language, if it is known there. One of several parts is known if each of them is. */
export function said(line: string): string {
  // What is longer is no sentence, and takes long to look through.
  if (line.length > LONGEST) return line;
  const parts = line.split("; ");
  const own = parts.length > 1 ? parts.map(said) : [];
  if (own.length > 0 && own.every((part, at) => part !== parts[at])) return own.join("; ");
  for (const [pattern, phrase] of phrases) {
    const values = pattern.exec(line)?.slice(1).map(said);
    if (values !== undefined) return phrase.replaceAll("{}", () => values.shift() ?? "");
  }
  return line;
}

type Texts = Partial<Pick<ToolItem, "name" | "slug" | "displayName" | "description" | "translations">>;

/** Return the name and description of a tool or bundle in this language, else its own. */
export function translated({ name, slug, displayName, description, translations = {} }: Texts) {
  const tag = Object.keys(translations).toSorted().find((one) => one.toLowerCase().split("-")[0] === language);
  const own = translations[tag ?? ""];
  return { title: own?.displayName || displayName || name || slug || "", about: own?.description || description || "" };
}

export function number(value: number): string {
  return formats.number.format(value);
}

/** Return a time in words of this language, such as "3 hours ago"; the exact one is for a title. */
export function ago(moment: string): string {
  const seconds = (Date.parse(moment) - Date.now()) / 1000;
  const steps = [
    [60, "second", 1],
    [3600, "minute", 60],
    [86_400, "hour", 3600],
    [30 * 86_400, "day", 86_400],
    [365 * 86_400, "month", 30 * 86_400],
    [Infinity, "year", 365 * 86_400],
  ] as const;
  const [, unit, size] = steps.find(([below]) => Math.abs(seconds) < below) ?? steps[5];
  return formats.ago.format(Math.round(seconds / size), unit);
}

export function exact(moment: string): string {
  return formats.exact.format(new Date(moment));
}

/** Made once for all: to make one takes longer than to use it hundreds of times. */
function formatsOf(locale: string) {
  return {
    plural: new Intl.PluralRules(locale),
    number: new Intl.NumberFormat(locale),
    ago: new Intl.RelativeTimeFormat(locale, { numeric: "auto" }),
    exact: new Intl.DateTimeFormat(locale, { dateStyle: "medium", timeStyle: "medium" }),
  };
}

function literal(text: string): string {
  return text.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
}

function longer(text: string): string {
  return text.replace(/[^|{}]+(?![^{]*\})/g, (part) => `⟦${part}~~⟧`);
}
