/** Every page: its path, its module, which exports `Page`, and its place in the navigation if it has one. */

import type { ComponentType } from "react";
import type { Key } from "../text";

type PageEntry = {
  path: string;
  load: () => Promise<{ Page: ComponentType }>;
  title?: Key;
  /** The outline of its icon in a box of 24 by 24. */
  icon?: string;
};

export const PAGES: readonly PageEntry[] = [
  {
    path: "/tools",
    load: () => import("./tools/ToolsPage"),
    title: "page.tools",
    icon: "M4 5h16v5H4zM4 14h6v5H4zM14 14h6v5h-6z",
  },
  { path: "/tools/$bundle/$slug/$version", load: () => import("./tools/ToolPage") },
];
