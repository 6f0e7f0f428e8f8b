/** JSON data as YAML that a person reads: blocks, and texts in quotes only where they need them. */

import { writeExact } from "../../parts";

const PLAIN = /^[A-Za-z_/.][\w/.@-]*( [\w/.@(),'-]+)*$/;
const WORDS = /^(true|false|null|yes|no|on|off|y|n)$/i;

function scalar(value: unknown): string {
  const isPlain = typeof value === "string" && PLAIN.test(value) && !WORDS.test(value);
  return isPlain ? value : writeExact(value);
}

function isEmpty(value: unknown): boolean {
  return typeof value !== "object" || value === null || Object.keys(value).length === 0;
}

function block(value: object, indent: string): string {
  if (Array.isArray(value)) {
    return value.map((one) => `${indent}- ${isEmpty(one) ? `${scalar(one)}\n` : block(one as object, `${indent}  `).trimStart()}`).join("");
  }
  return Object.entries(value)
    .map(([key, one]) => `${indent}${scalar(key)}:${isEmpty(one) ? ` ${scalar(one)}\n` : `\n${block(one as object, `${indent}  `)}`}`)
    .join("");
}

export function toYaml(value: Record<string, unknown>): string {
  return block(value, "");
}
