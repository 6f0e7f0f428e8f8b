import type { ComponentProps } from "react";
import { Lines } from "./fields";
import type { Read } from "./json";

/** A field for a JSON object, and what is wrong in it. */
export function JsonLines({ read, ...field }: ComponentProps<typeof Lines> & { read: Read | null }) {
  const wrong = read !== null && "wrong" in read ? read.wrong : "";
  return (
    <div className="stack wide">
      <Lines {...field} rows={2} dir="ltr" aria-invalid={wrong !== ""} />
      <p className="wrong" role="alert">{wrong}</p>
    </div>
  );
}
