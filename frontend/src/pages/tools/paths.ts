import type { ToolItem } from "../../api/client";

/** Return the address of a tool's page. */
export function toolPath({ bundleID, slug, version }: Pick<ToolItem, "bundleID" | "slug" | "version">): string {
  return `/tools/${bundleID}/${encodeURIComponent(slug)}/${encodeURIComponent(version)}`;
}
