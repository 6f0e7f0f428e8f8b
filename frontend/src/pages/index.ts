/** Every page: its path, its module, which exports `Page`, and its place in the navigation if it has one. */

import type { ComponentType } from "react";
import type { Key } from "../text";

type PageEntry = {
  path: string;
  load: () => Promise<{ Page: ComponentType }>;
  title?: Key;
  /** Its name in the palette, for a page that others lead to. */
  action?: Key;
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
  { path: "/tools/new", load: () => import("./build/BuildPage"), action: "build.new" },
  { path: "/tools/import", load: () => import("./build/ImportPage"), action: "import.title" },
  { path: "/tools/trash", load: () => import("./build/TrashPage"), action: "trash.title" },
  { path: "/tools/$bundle/$slug/$version", load: () => import("./tools/ToolPage") },
  {
    path: "/approvals",
    load: () => import("./approvals/ApprovalsPage"),
    title: "page.approvals",
    icon: "M4 12.5l5 5L20 6.5",
  },
  {
    path: "/runs",
    load: () => import("./runs/RunsPage"),
    title: "page.runs",
    icon: "M4 6h9M8 12h12M6 18h8",
  },
  { path: "/runs/$id", load: () => import("./runs/RunPage") },
  {
    path: "/audit",
    load: () => import("./audit/AuditPage"),
    title: "page.audit",
    icon: "M6 3h12v18H6zM9 8h6M9 12h6M9 16h4",
  },
];
