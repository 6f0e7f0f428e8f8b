import type { ReactNode } from "react";

type Props = { title: ReactNode; marks?: ReactNode; facts?: readonly ReactNode[]; begin?: ReactNode; end?: ReactNode; children?: ReactNode };

/** A row of a list: its title with marks beside it, what it says, and facts about it; `begin` and `end` are at its sides. */
export function Row({ title, marks, facts = [], begin, end, children }: Props) {
  return (
    <li className="row">
      {begin}
      <div className="row-main">
        <p className="line">
          <span className="row-title">{title}</span>
          {marks}
        </p>
        {children}
        {facts.length > 0 && <p className="line row-facts">{facts.map((fact, index) => fact !== null && <span key={index}>{fact}</span>)}</p>}
      </div>
      {end}
    </li>
  );
}
