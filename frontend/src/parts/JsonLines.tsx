import type { ComponentProps } from "react";
import { t } from "../text";
import { Lines } from "./fields";
import type { Read } from "./json";

/** A field for a JSON object, and what is wrong in it. */
export function JsonLines({ read, ...field }: ComponentProps<typeof Lines> & { read: Read | null }) {
  const fine = read === null || "value" in read;
  return (
    <div className="stack wide">
      <Lines {...field} rows={2} dir="ltr" aria-invalid={!fine} />
      {!fine && <p className="wrong" role="alert">{"line" in read ? t("test.json.invalid", { line: read.line, column: read.column }) : t("test.json.object")}</p>}
    </div>
  );
}
