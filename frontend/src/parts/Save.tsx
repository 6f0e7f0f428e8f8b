import { api, data, errorOf, send } from "../api/client";
import { prefix } from "../api/session";
import { useAction } from "./action";
import { Button } from "./small";

/** Save what a path of the server returns, by a one-time address: of any size, as it never is in memory. */
export async function download(path: string, query: Record<string, string> = {}): Promise<void> {
  const given = new URLSearchParams(query);
  // A browser would save a refusal as a file, so the first bytes are asked for before.
  const answer = await send(`${path}?${given}`);
  if (!answer.ok) throw errorOf(await answer.json(), answer.status);
  await answer.body?.cancel();
  given.set("once", (await data(api.POST("/downloads", { body: { path } }))).once);
  const link = document.createElement("a");
  link.href = `${prefix}${path}?${given}`;
  link.download = "";
  link.click();
}

/** A button that saves what a path of the server returns. */
export function Save({ label, path, query }: { label: string; path: string; query?: Record<string, string> }) {
  const save = useAction(() => download(path, query));
  return <Button disabled={save.isPending} onClick={() => save.mutate()}>{label}</Button>;
}
