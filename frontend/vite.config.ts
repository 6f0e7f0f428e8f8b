import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";
import { texts } from "./src/text/texts.ts";

const LANGUAGES = ["en", "de"];
/** A module for the texts of each language, so that nobody loads those of another. */
const languages = {
  name: "languages",
  resolveId: (id: string) => (id.startsWith("texts:") ? id : null),
  load(id: string) {
    const at = LANGUAGES.indexOf(id.replace("texts:", ""));
    const own = Object.entries(texts).map(([key, all]) => [key, all[at]]);
    return at < 0 ? null : `export default ${JSON.stringify(Object.fromEntries(own))}`;
  },
};

export default defineConfig({
  // Relative, so that the page works below any prefix.
  base: "./",
  plugins: [react(), languages],
  build: {
    outDir: "../src/toolcrib/page",
    emptyOutDir: true,
    // A data: address would not be of this origin.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    target: "es2022",
    cssTarget: "chrome125",
    chunkSizeWarningLimit: 600,
  },
  test: { environment: "jsdom", include: ["test/**/*.test.{ts,tsx}"] },
});
