import { building } from "./building.ts";
import { operations } from "./operations.ts";
import { pages } from "./pages.ts";

/** Every text by its name: in English, in German. The build makes a module of each language: `texts:en`, `texts:de`. */
export const texts = { ...pages, ...building, ...operations };
export type Key = keyof typeof texts;
