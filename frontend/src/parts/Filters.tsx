/** Filters that are in the address of a page, so that they can be kept and sent. */

import { useNavigate, useSearch } from "@tanstack/react-router";
import { type ReactNode, useState } from "react";
import { t } from "../text";
import { Line } from "./fields";

type Values<Name extends string> = Record<Name, string>;
type Change<Name extends string> = (part: Partial<Values<Name>>) => void;

/** Return the values that the address of a page has by these names, and what changes them. */
export function useAddress<Name extends string>(to: string, names: readonly Name[]): [Values<Name>, Change<Name>] {
  const address = useSearch({ strict: false }) as Partial<Values<string>>;
  const navigate = useNavigate();
  const found = Object.fromEntries(names.map((name) => [name, address[name] ?? ""])) as Values<Name>;
  return [found, (part) => void navigate({ to, replace: true, search: { ...found, ...part } })];
}

const DAYS = { since: "T00:00", until: "T24:00" } as const;

/** Return the values that are given as a query of the API: of a day the moment at which it begins or ends. */
export function queryOf<Name extends string>(values: Values<Name>): Partial<Values<Name>> {
  const given = Object.entries<string>(values).flatMap(([name, value]) => {
    if (!(name in DAYS)) return value === "" ? [] : [[name, value]];
    const moment = new Date(value + DAYS[name as keyof typeof DAYS]);
    return Number.isNaN(moment.getTime()) ? [] : [[name, moment.toISOString()]];
  });
  return Object.fromEntries(given) as Partial<Values<Name>>;
}

const FIELDS = ["tool", "agent", "event", "caller", "sessionId", "status", "code", "text", "since", "until"] as const;
type Field = (typeof FIELDS)[number];
type Props<Name extends Field> = { of: readonly Name[]; values: Values<NoInfer<Name>>; change: Change<NoInfer<Name>>; known?: Partial<Record<Name, readonly string[]>>; children?: ReactNode };

/** A field for each filter; on a phone they are folded until one is used. */
export function Filters<Name extends Field>({ of, values, change, known = {}, children }: Props<Name>) {
  const [open] = useState(() => matchMedia("(min-width: 600px)").matches || of.some((name) => values[name] !== ""));
  return (
    <details open={open}>
      <summary>{t("tools.filters")}</summary>
      <div className="toolbar filters">
        {children}
        {of.map((name) => (
          <Line
            key={name}
            label={t(`filter.${name}`)}
            type={name in DAYS ? "date" : "search"}
            value={values[name]}
            known={known[name]}
            change={(value) => change({ [name]: value } as Partial<Values<Name>>)}
          />
        ))}
      </div>
    </details>
  );
}
