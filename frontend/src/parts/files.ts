import { api, data } from "../api/client";
import { prefix } from "../api/session";

/** Save what a path of the server returns, by a one-time address: of any size, as it never is in memory. */
export async function download(path: string): Promise<void> {
  const { once } = await data(api.POST("/downloads", { body: { path } }));
  const link = document.createElement("a");
  link.href = `${prefix}${path}?once=${once}`;
  link.download = "";
  link.click();
}

/** Save something as a file of this name. */
export function saveFile(content: Blob, name: string): void {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(content);
  link.download = name;
  link.click();
  URL.revokeObjectURL(link.href);
}
