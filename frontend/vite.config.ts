import react from "@vitejs/plugin-react";
import { defineConfig } from "vitest/config";

export default defineConfig({
  // Relative, so that the page works below any prefix.
  base: "./",
  plugins: [react()],
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
