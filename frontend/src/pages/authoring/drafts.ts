/** Drafts: the text of a tool that is not stored, what the server says about it, and how it is saved. */

import { keepPreviousData } from "@tanstack/react-query";
import { useEffect, useState } from "react";
import { api, data, errorOf, type Schemas, send, type Tool } from "../../api/client";
import { readExact, useRead, writeExact } from "../../parts";
import { t } from "../../text";

export type CheckedDraft = Schemas["CheckedDraft"];
export type DraftTool = Schemas["DraftTool"];

const PAUSE_MS = 250;

/** The text that another page has made for the editor, with notes about it. */
export const given: { text: string; notes: readonly string[] } = { text: "", notes: [] };

/** Read what the server says about a text. */
export function useDraft(text: string, more: { placeholderData?: typeof keepPreviousData } = {}) {
  return useRead(["draft", text], () => api.POST("/tools/draft", { body: { text } }), more);
}

/** Return what the server says about a text, as soon as one pauses. */
export function useChecked(text: string) {
  const [settled, setSettled] = useState(text);
  useEffect(() => {
    const later = setTimeout(() => setSettled(text), PAUSE_MS);
    return () => clearTimeout(later);
  }, [text]);
  const query = useDraft(settled, { placeholderData: keepPreviousData });
  const current = settled === text && !query.isPlaceholderData && !query.isError;
  return { checked: query.data, current, error: query.error };
}

/** Return the text that would put a tool again: a manifest, or a record as JSON. */
export function textOf(tool: Tool): string | null {
  if (typeof tool.impl.manifest === "string") return tool.impl.manifest;
  if (tool.type !== "http" && tool.type !== "go") return null;
  const { slug, version, type, displayName, description, translations, tags, argSchema, outputSchema, impl } = tool;
  const record = { slug, version, type, displayName, description, translations, tags, argSchema, outputSchema, impl };
  return `${writeExact(record, 2)}\n`;
}

function bump(version: string): string {
  const last = /^(.*?)(\d+)(\D*)$/.exec(version);
  return last === null ? `${version}.2` : `${last[1]}${Number(last[2]) + 1}${last[3]}`;
}

/** Return the text with the next version. */
export function nextVersion(text: string): string {
  if (!text.trimStart().startsWith("{")) {
    return text.replace(/^(version:\s*["']?)([^\s"'#]+)/m, (_, begin: string, version: string) => begin + bump(version));
  }
  const record = readExact(text) as { version: string | number };
  const version = typeof record.version === "number" ? record.version + 1 : bump(record.version);
  return `${writeExact({ ...record, version }, 2)}\n`;
}

/** Put a draft into a bundle. Raises ApiError. */
export async function put(bundle: string, { slug, version }: DraftTool, text: string): Promise<Tool> {
  const isRecord = text.trimStart().startsWith("{") && "impl" in (JSON.parse(text) as object);
  const address = `${encodeURIComponent(slug)}/version/${encodeURIComponent(version)}`;
  const answer = await send(`/tools/bundles/${bundle}/tools/${address}`, {
    method: "PUT",
    headers: { "content-type": isRecord ? "application/json" : "application/yaml" },
    body: text,
  });
  const body: unknown = await answer.json();
  if (!answer.ok) throw errorOf(body, answer.status);
  return body as Tool;
}

/** Return a stored tool as a draft: what it may touch as it is now. */
export async function draftOf(name: string): Promise<DraftTool> {
  const { tool, diagnostics } = await data(api.POST("/tools/draft", { body: { tool: name } }));
  if (tool === null) throw new Error(diagnostics[0]?.message);
  return tool;
}

/** Trust a tool that was just saved, as its draft was shown; if it may touch other things, it is left to the trust inbox. Raises Error. */
export async function trustSaved({ name, impl }: Tool, draft: DraftTool): Promise<void> {
  // A record is stored in another form than its text, so its digest is another one.
  const stored = typeof impl.manifest === "string" ? draft : await draftOf(name);
  if (stored.touches.join("\n") !== draft.touches.join("\n")) throw new Error(t("build.save.differs", { name }));
  await data(api.POST("/trust", { body: { tools: { [name]: stored.digest ?? "" } } }));
}

/** Create a bundle of this person and return its id, a UUID of version 7 (RFC 9562, 5.7). */
export async function createBundle(displayName: string): Promise<string> {
  const random = [...crypto.getRandomValues(new Uint8Array(9))].map((byte) => byte.toString(16).padStart(2, "0")).join("");
  const hex = `${Date.now().toString(16).padStart(12, "0")}7${random.slice(0, 3)}8${random.slice(3)}`;
  const id = hex.replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
  const slug = displayName.normalize("NFC").replace(/[^\p{L}\p{Nd}]+/gu, "-").replace(/^-+|-+$/g, "").slice(0, 64);
  await data(api.PUT("/tools/bundles/{bundleID}", { params: { path: { bundleID: id } }, body: { slug, displayName } }));
  return id;
}
