import type { ReactNode } from "react";

type Props = { head: readonly string[]; sorted?: number; rows: readonly { key: string; cells: readonly ReactNode[] }[] };

/** A table whose rows begin with their names; the other cells are numbers. On a phone these stand below the name. */
export function Table({ head, sorted, rows }: Props) {
  return (
    <table className="table">
      <thead>
        <tr>
          {head.map((cell, index) => (
            <th key={cell} scope="col" className={index > 0 ? "number" : ""} aria-sort={index === sorted ? "descending" : undefined}>
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
              <td key={head[index + 1]} className="number" data-head={head[index + 1]}>
                {cell}
              </td>
            ))}
          </tr>
        ))}
      </tbody>
    </table>
  );
}
