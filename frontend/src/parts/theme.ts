/** Light, dark, or as the system has it. */

export const THEMES = ["system", "light", "dark"] as const;
export type Theme = (typeof THEMES)[number];
const STORED = "toolcrib.theme";

export function currentTheme(): Theme {
  return THEMES.find((theme) => theme === localStorage.getItem(STORED)) ?? "system";
}

export function applyTheme(theme: Theme = currentTheme()): void {
  localStorage.setItem(STORED, theme);
  document.documentElement.dataset.theme = theme;
}
