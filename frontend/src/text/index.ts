/** The texts of the page in the person's language. */

import type { ToolItem } from "../api/client";
import { building } from "./building";
import { errors } from "./errors";
import { operations } from "./operations";
import { pages } from "./pages";
import { touches } from "./touches";

/** Every text by its name: in English, in German. */
export const texts = { ...pages, ...building, ...operations };
export type Key = keyof typeof texts;

/** `pseudo` is for tests of the layout: English, longer, from right to left. */
export const LANGUAGES = { en: "English", de: "Deutsch" } as const;
type Language = keyof typeof LANGUAGES | "pseudo";

const STORED = "toolcrib.language";
export const language = wanted();
const formats = formatsOf(language === "de" ? "de" : "en");

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
  const [english, german] = texts[key];
  const forms = (language === "de" ? german : language === "pseudo" ? longer(english) : english).split("|");
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

/** Return what an error code means in this language; "" where the server's own message is in it. */
export function meaning(code: string): string {
  return language === "de" ? (errors[code] ?? "") : "";
}

type Texts = Partial<Pick<ToolItem, "name" | "slug" | "displayName" | "description" | "translations">>;

/** Return the name and description of a tool or bundle in this language, else its own. */
export function translated({ name, slug, displayName, description, translations = {} }: Texts) {
  const tag = Object.keys(translations).toSorted().find((one) => one.toLowerCase().split("-")[0] === language);
  const own = translations[tag ?? ""];
  return { title: own?.displayName || displayName || name || slug || "", about: own?.description || description || "" };
}

/** Return a line of what a call may touch in this language. */
export function touch(line: string): string {
  for (const [english, own] of language === "de" ? touches : []) {
    const [before = "", value] = english.split("{}");
    if (value === undefined ? line === english : line.startsWith(before)) return own.replace("{}", () => line.slice(before.length));
  }
  return line;
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

function longer(text: string): string {
  return text.replace(/[^|{}]+(?![^{]*\})/g, (part) => `⟦${part}~~⟧`);
}
