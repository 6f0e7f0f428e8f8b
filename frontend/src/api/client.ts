/** Requests to the REST API of the server that this page came from, with the types of its description. */

import createClient from "openapi-fetch";
import { readAnswer, writeExact } from "../parts/exact";
import { t } from "../text";
import type { components, paths } from "./schema";
import { said, spoken } from "../text";
import { currentToken, forget, prefix } from "./session";

export type Schemas = components["schemas"];
export type ToolItem = Schemas["ToolItem"];
export type Tool = Schemas["ToolAnswer"];
export type Bundle = Schemas["BundleAnswer"];

/** The error of a request, in the one form that every interface has. */
export class ApiError extends Error {
  constructor(
    readonly code: string,
    message: string,
    readonly hint = "",
    readonly violations: { path: string; message: string }[] = [],
    readonly details: Record<string, unknown> | null = null,
  ) {
    super(message);
  }
}

/** Send a request with the session's token. Raises ApiError without an answer. */
export async function send(input: Request | string, options: RequestInit = {}): Promise<Response> {
  const request = typeof input === "string" ? new Request(prefix + input, options) : input;
  request.headers.set("authorization", `Bearer ${currentToken()}`);
  let answer: Response;
  try {
    // The tag of an answer is that of the record in it; who calls it, trust and switches change without it.
    answer = await fetch(request, { cache: "no-store" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiError("offline", t("state.offline"), t("state.offline.hint"));
  }
  if (answer.status === 401) forget();
  return answer;
}

const client = createClient<paths>({ baseUrl: prefix, fetch: (request: Request) => send(request), bodySerializer: (body) => writeExact(body) });

/** The routes of the API. Answers come as texts, which `data` reads. */
export const api = new Proxy(client, {
  get: (routes, method: "GET") => (path: never, options: object) => routes[method](path, { ...options, parseAs: "text" } as never),
});

export type Answered<T> = { data?: T; error?: unknown; response: Response };

/** Return the data of an answer, with the numbers of tools and people as they were written. Raises ApiError for an error. */
export async function data<T>(answer: Promise<Answered<T>>): Promise<T> {
  const { data: found, error, response } = await answer;
  if (!response.ok) throw errorOf(error, response.status);
  return (typeof found === "string" ? readAnswer(found) : found) as T;
}

/** Return the error in the body of an answer. */
export function errorOf(body: unknown, status: number): ApiError {
  const told = (body as { error?: Partial<Schemas["Problem"]> } | undefined)?.error;
  const code = told?.code ?? String(status);
  return new ApiError(code, spoken(code, told?.message ?? `HTTP ${status}`), said(told?.hint ?? ""), told?.violations ?? [], told?.details);
}
