/** A call as text for other places: a shell, the command line, a program. */

import type { Tool } from "../../api/client";
import { prefix } from "../../api/session";
import { readExact, writeExact } from "../../parts";

const quoted = (text: string) => `'${text.replaceAll("'", `'\\''`)}'`;

export const COPIES = { curl: asCurl, CLI: asCommand, Python: asPython } as const;

function asCurl(tool: Tool, text: string): string {
  return [
    `curl ${quoted(`${location.origin}${prefix}/tools/invoke/${encodeURIComponent(tool.name)}`)}`,
    `-H "Authorization: Bearer $TOOLCRIB_TOKEN"`,
    `-H 'Content-Type: application/json'`,
    `-d ${quoted(`{"args": ${text}}`)}`,
  ].join(" \\\n  ");
}

function asCommand(tool: Tool, text: string): string {
  return `printf %s ${quoted(text)} | toolcrib run ${quoted(tool.name)} -`;
}

function asPython(tool: Tool, text: string): string {
  return `import asyncio

from toolcrib import Project


async def main() -> None:
    async with Project.open() as project:
        result = await project.call(${JSON.stringify(tool.name)}, ${literal(readExact(text))})
        print(result.value if result.ok else result.error)


asyncio.run(main())
`;
}

/** Return an exact JSON value as Python writes it. */
export function literal(value: unknown): string {
  if (value === null) return "None";
  if (value === true) return "True";
  if (value === false) return "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") {
    const entries = Object.entries(value).map(([key, one]) => `${JSON.stringify(key)}: ${literal(one)}`);
    return `{${entries.join(", ")}}`;
  }
  return writeExact(value);
}
