import { Bullets } from "../small";
import { type Checked, useProblems } from "./checked";

/** What is wrong with a value, each with its place. */
export default function Problems(checked: Checked) {
  return (
    <Bullets
      className="wrong"
      of={useProblems(checked).map(({ path, message }) => {
        const place = path.map((part) => (/^\d+$/.test(part) ? `[${part}]` : `.${part}`)).join("");
        return `${place.replace(/^\./, "") || "{}"}: ${message}`;
      })}
    />
  );
}
