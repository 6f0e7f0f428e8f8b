/** What is wrong with a value, as this page and the server find it. */

import { useState } from "react";
import { writeExact } from "../exact";
import { type Problem, problemsIn, problemsOf, type Refused } from "./validator";

export type Checked = {
  schema: Record<string, unknown>;
  /** As `readExact` has read it. */
  value: Record<string, unknown>;
  /** What the server found wrong with a value that it refused. */
  refused?: Refused[];
};

/** Return what is wrong. What lacks is named once the server has refused the value; its own words only where the page finds nothing. */
export function useProblems({ schema, value, refused }: Checked): Problem[] {
  const text = writeExact(value);
  const [last, setLast] = useState({ refused, text });
  if (last.refused !== refused) setLast({ refused, text });
  const own = problemsOf(schema, value).filter(({ keyword }) => keyword !== "required" || refused !== undefined);
  return own.length === 0 && refused !== undefined && last.text === text ? problemsIn(refused) : own;
}
