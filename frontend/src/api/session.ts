/** The token of this person's session: from a login link, this tab, or another tab that is open. */

const KEY = "toolcrib.token";
const WAIT_MS = 400;

/** The path where the application is mounted, without a slash at its end. */
export const prefix = new URL(".", location.href).pathname.replace(/\/$/, "");

type Note = { kind: "ask" } | { kind: "token"; token: string } | { kind: "ended" };

const channel = new BroadcastChannel(`toolcrib ${prefix}`);
const listeners = new Set<() => void>();
let token = sessionStorage.getItem(KEY);

channel.addEventListener("message", ({ data }: MessageEvent<Note>) => {
  if (data.kind === "ask" && token !== null) tell({ kind: "token", token });
  if (data.kind === "token" && token === null) keep(data.token);
  if (data.kind === "ended") keep(null);
});

function tell(note: Note): void {
  channel.postMessage(note);
}

function keep(next: string | null): void {
  token = next;
  if (next === null) sessionStorage.removeItem(KEY);
  else sessionStorage.setItem(KEY, next);
  for (const listener of listeners) listener();
}

export function currentToken(): string | null {
  return token;
}

/** Call `listener` when the session begins or ends; for React's useSyncExternalStore. */
export function onSession(listener: () => void): () => void {
  listeners.add(listener);
  return () => listeners.delete(listener);
}

/** Forget the session, for example after the server has ended it. */
export function forget(): void {
  keep(null);
}

/** End the session, in every tab. */
export async function logOut(): Promise<void> {
  // Also where the server is away: the person leaves.
  await fetch(`${prefix}/session`, { method: "DELETE", headers: { authorization: `Bearer ${token}` } }).catch(() => null);
  tell({ kind: "ended" });
  keep(null);
}

/** Find a token. Of a login link the code is used up, and leaves the address and the history. */
export async function begin(): Promise<void> {
  const code = /^#code=(.+)$/.exec(location.hash)?.[1];
  if (code !== undefined) {
    history.replaceState(null, "", `${location.pathname}#/`);
    const answer = await fetch(`${prefix}/session`, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ code }),
    }).catch(() => null);
    if (answer?.ok) {
      const begun = (await answer.json()) as { token: string };
      keep(begun.token);
      tell({ kind: "token", token: begun.token });
      return;
    }
  }
  if (token !== null) return;
  await new Promise<void>((resolve) => {
    const stop = onSession(resolve);
    tell({ kind: "ask" });
    setTimeout(() => {
      stop();
      resolve();
    }, WAIT_MS);
  });
}
