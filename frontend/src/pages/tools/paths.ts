/** Where a version of a tool is: in an address, and in the paths of the API. */

import type { ToolItem } from "../../api/client";

type Place = Pick<ToolItem, "bundleID" | "slug" | "version">;

/** Return the words by which the editor finds a tool. */
export const wordsOf = ({ bundleID, slug, version }: Place) => `${bundleID}/${encodeURIComponent(slug)}/${encodeURIComponent(version)}`;

/** Return the address of a tool's page. */
export const toolPath = (tool: Place) => `/tools/${wordsOf(tool)}`;

/** Return what names a tool in the paths of the API. */
export const pathOf = ({ bundleID, slug, version }: Place) => ({ bundleID, toolSlug: slug, v: version });
