/** Requests to the REST API of the server that this page came from, with the types of its description. */

import createClient from "openapi-fetch";
import { readExact } from "../parts/exact";
import type { components, paths } from "./schema";
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
    throw new ApiError("offline", "");
  }
  if (answer.status === 401) forget();
  return answer;
}

export const api = createClient<paths>({ baseUrl: prefix, fetch: (request: Request) => send(request) });

type Answered<T> = { data?: T; error?: unknown; response: Response };

/** Return the data of an answer. Raises ApiError for an error. */
export async function data<T>(answer: Promise<Answered<T>>): Promise<T> {
  const { data: found, error, response } = await answer;
  if (!response.ok) throw errorOf(error, response.status);
  return found as T;
}

/** Return the data of an answer that is asked for as a text; its numbers stay as they are written. */
export async function exact<T>(answer: Promise<Answered<string>>): Promise<T> {
  return readExact(await data(answer)) as T;
}

/** Return the error in the body of an answer. */
export function errorOf(body: unknown, status: number): ApiError {
  const told = (body as { error?: Partial<Schemas["Problem"]> } | undefined)?.error;
  const message = told?.message ?? `HTTP ${status}`;
  return new ApiError(told?.code ?? String(status), message, told?.hint ?? "", told?.violations ?? [], told?.details);
}
