import type { ReactNode } from "react";

type Props = { head: readonly ReactNode[]; sorted?: number; rows: readonly { key: string; cells: readonly ReactNode[] }[] };

/** A table that scrolls by itself: each row begins with its name, and the other cells are numbers. */
export function Table({ head, sorted, rows }: Props) {
  return (
    <div className="scrolls" tabIndex={0}>
      <table className="table">
        <thead>
          <tr>
            {head.map((cell, index) => (
              <th key={index} scope="col" className={index > 0 ? "number" : ""} aria-sort={index === sorted ? "descending" : undefined}>
                {cell}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map(({ key, cells: [name, ...numbers] }) => (
            <tr key={key}>
              <th scope="row">{name}</th>
              {numbers.map((cell, index) => (
                <td key={index} className="number">
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}
