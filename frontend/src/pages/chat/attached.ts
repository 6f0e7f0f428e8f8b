/** Tools that are attached to a message: each runs before it is sent, and the agent reads the output. */

import { useState } from "react";
import { api, data, type ToolItem } from "../../api/client";
import { shownExact } from "../../parts";
import { t } from "../../text";
import { type CallEvent, callOf, type Ended, firstArguments, follow } from "../tools/call";
import { pathOf } from "../tools/paths";

export type Attached = {
  key: number;
  tool: ToolItem;
  text: string;
  state: "pending" | "running" | "output" | "failed";
  /** What came of it while it runs. */
  events?: CallEvent[];
  ended?: Ended;
  problem?: string;
};

/** `+NAME` with or without arguments, as the whole message. */
const INVOKED = /^\+(\S+)\s*(\{[\s\S]*\})?\s*$/;
let last = 0;

/** Return a tool with its arguments, which may be those of its first example. */
export async function attached(tool: ToolItem, given?: string): Promise<Attached> {
  const path = pathOf(tool);
  const text = given ?? firstArguments(await data(api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}", { params: { path } })));
  last += 1;
  return { key: last, tool, text, state: "pending" };
}

/** Return the attached tools, and what changes and runs them. */
export function useAttached() {
  const [all, setAll] = useState<Attached[]>([]);
  const change = (key: number, part: Partial<Attached>) =>
    setAll((known) => known.map((one) => (one.key === key ? { ...one, ...part } : one)));
  const start = async (one: Attached): Promise<Attached> => {
    let events: CallEvent[] = [];
    change(one.key, { state: "running", problem: undefined, ended: undefined, events });
    const done = await ended(one, (event) => {
      events = [...events, event];
      change(one.key, { events });
    });
    change(one.key, done);
    return done;
  };
  return {
    all,
    add: (one: Attached) => setAll((known) => [...known, one]),
    write: (key: number, text: string) => change(key, { text, state: "pending", ended: undefined }),
    remove: (key: number) => setAll((known) => known.filter((one) => one.key !== key)),
    clear: () => setAll([]),
    start,
  };
}

async function ended(one: Attached, onEvent: (event: CallEvent) => void): Promise<Attached> {
  try {
    const answer = await callOf(one.tool)(one.text, false);
    if (answer === null) return { ...one, state: "pending" };
    const found = await follow(answer, { onEvent });
    return { ...one, state: found.result.ok ? "output" : "failed", ended: found };
  } catch (error) {
    return { ...one, state: "failed", problem: error instanceof Error ? error.message : String(error) };
  }
}

/** Return the tool that a message invokes, with its arguments; undefined for a message to the agent. */
export async function invoked(message: string): Promise<Attached | undefined> {
  const [, name, args] = INVOKED.exec(message) ?? [];
  if (name === undefined) return undefined;
  const found = await data(api.GET("/tools/search", { params: { query: { q: name, pageSize: 25 } } }));
  const tool = found.tools.find((one) => one.name === name) ?? found.tools.find((one) => one.slug === name);
  if (tool === undefined) throw new Error(t("chat.unknown", { tool: name }));
  return attached(tool, args);
}

/** Return a message with the outputs of its tools, as the agent gets it. */
export function withOutputs(message: string, all: readonly Attached[]): string {
  const outputs = all.map(({ tool, text, ended: end }) => {
    return `${t("chat.output.of", { tool: tool.name, arguments: text })}\n${shownExact(end?.result.value)}`;
  });
  return [message, ...outputs].join("\n\n");
}
