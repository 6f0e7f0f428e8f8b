/** Every page: its path, its module, which exports `Page`; with a title it is in the palette, with an icon in the navigation. */

import type { ComponentType } from "react";
import type { Key } from "../text";
import { PARTS } from "./operations/parts";

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
  { path: "/tools/new", load: () => import("./authoring/BuildPage"), action: "build.new" },
  { path: "/tools/import", load: () => import("./authoring/ImportPage"), action: "import.title" },
  { path: "/tools/trash", load: () => import("./authoring/TrashPage"), action: "trash.title" },
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
  {
    path: "/chat",
    load: () => import("./chat/ChatPage"),
    title: "page.chat",
    icon: "M4 5h16v11H10l-4 4v-4H4z",
  },
  {
    path: "/operations",
    load: () => import("./operations/OperationsPage"),
    title: "page.operations",
    icon: "M4 7h10M18 7h2M4 17h2M10 17h10M14 4v6M6 14v6",
  },
  ...PARTS.map((part) => ({
    path: `/operations/${part}`,
    load: () => import("./operations/OperationsPage"),
    title: `ops.${part}` as const,
  })),
];
