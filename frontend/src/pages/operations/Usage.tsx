import { keepPreviousData } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { useState } from "react";
import { api, type Schemas } from "../../api/client";
import { Choice } from "../../parts/fields";
import { useAddress } from "../../parts/Filters";
import { useSome } from "../../parts/Pages";
import { Card, Fold } from "../../parts/small";
import { Shown } from "../../parts/states";
import { Table } from "../../parts/Table";
import { useRead } from "../../parts/read";
import { language, number, t } from "../../text";
import { toolPath } from "../tools/paths";
import { byDay, firstDay, NUMBERS, type Shows, sumOf } from "./days";

type ToolDays = Schemas["ToolDays"];
const DAYS = [7, 30, 90];
const FEW = 20;
const COLUMNS = [...NUMBERS, "schemaTokens"] as const;

/** Calls, errors, durations and tokens by tool and day; what is used most, and what is not used. */
export function Usage() {
  const [address, change] = useAddress("/operations/usage", ["days", "shows", "tool"]);
  const days = DAYS.find((one) => String(one) === address.days) ?? 7;
  const shows = NUMBERS.find((one) => one === address.shows) ?? "calls";
  const chosen = address.tool;
  const since = firstDay(days);
  const usage = useRead(
    ["usage", "all", since],
    () => api.GET("/tools/usage", { params: { query: { since, unused: true } } }),
    { placeholderData: keepPreviousData },
  );
  return (
    <Shown query={usage}>
      {({ tools }) => {
        const called = tools.filter((tool) => tool.days.length > 0);
        const counted = chosen === "" ? called : called.filter((tool) => tool.name === chosen);
        return (
          <>
            <div className="fields">
              <Choice label={t("usage.days")} value={days} change={(one) => change({ days: String(one) })} of={DAYS} text={(one) => t("usage.days.n", { n: one })} />
              <Choice
                label={t("usage.tool")}
                value={chosen}
                change={(tool) => change({ tool })}
                of={["", ...called.map(({ name }) => name)]}
                text={(one) => one || t("usage.all")}
              />
              <Choice label={t("usage.shows")} value={shows} change={(one) => change({ shows: one })} of={NUMBERS} text={(one) => t(`usage.${one}`)} />
            </div>
            {called.length === 0 ? (
              <p className="muted">{t("usage.none")}</p>
            ) : (
              <>
                <Days tools={counted} first={since} shows={shows} />
                <Top tools={called} choose={(tool) => change({ tool })} />
              </>
            )}
            <Unused tools={tools.filter((tool) => tool.days.length === 0)} />
          </>
        );
      }}
    </Shown>
  );
}

const BAR = 10;
const HEIGHT = 100;

/** The days as bars, and the same numbers as a table. */
function Days({ tools, first, shows }: { tools: ToolDays[]; first: string; shows: Shows }) {
  const days = byDay(tools, first);
  const most = Math.max(1, ...days.map(({ sums }) => sums[shows]));
  const format = new Intl.DateTimeFormat(language === "de" ? "de" : "en", { month: "short", day: "numeric", timeZone: "UTC" });
  return (
    <section className="card days" aria-label={t(`usage.${shows}`)}>
      <figure>
        <figcaption>
          {t(`usage.${shows}`)} <span className="muted">≤ {number(Math.round(most))}</span>
        </figcaption>
        <svg viewBox={`0 0 ${days.length * BAR} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
          {days.map(({ begins, sums }, index) => (
            <Bar key={begins} index={index} sums={sums} shows={shows} most={most} />
          ))}
        </svg>
        <p className="muted axis" dir="ltr" aria-hidden="true">
          <span>{format.format(Date.parse(first))}</span>
          <span>{format.format(Date.parse(days.at(-1)?.begins ?? first))}</span>
        </p>
      </figure>
      <div className="scrolls" tabIndex={0}>
        <Table
          head={[t("usage.day"), ...NUMBERS.map((one) => t(`usage.${one}`))]}
          rows={days.toReversed().map(({ begins, sums }) => ({
            key: begins,
            cells: [format.format(Date.parse(begins)), ...NUMBERS.map((one) => number(Math.round(sums[one])))],
          }))}
        />
      </div>
      <p className="muted note">{t("usage.slowest")}</p>
    </section>
  );
}

type BarProps = { index: number; sums: Record<Shows, number>; shows: Shows; most: number };

function Bar({ index, sums, shows, most }: BarProps) {
  const place = { x: index * BAR + 1, width: BAR - 2 };
  const high = (value: number) => ({ y: HEIGHT - (HEIGHT * value) / most, height: (HEIGHT * value) / most });
  return (
    <>
      <rect {...place} {...high(sums[shows])} className={shows === "failures" ? "failed" : "all"} />
      {shows === "calls" && <rect {...place} {...high(sums.failures)} className="failed" />}
    </>
  );
}

/** The tools that were called, by any of their numbers. */
function Top({ tools, choose }: { tools: ToolDays[]; choose: (name: string) => void }) {
  const [by, setBy] = useState<(typeof COLUMNS)[number]>("calls");
  const rows = tools
    .map((tool) => ({ tool, sums: { ...sumOf(tool.days), schemaTokens: tool.schemaTokens } }))
    .toSorted((one, other) => other.sums[by] - one.sums[by]);
  const [shown, more] = useSome(rows, FEW);
  return (
    <Card className="stack" title={t("usage.top")}>
      <Choice className="sort" label={t("tools.sort")} value={by} change={setBy} of={COLUMNS} text={(one) => t(`usage.${one}`)} />
      <Table
        head={[t("usage.tool"), ...COLUMNS.map((one) => t(`usage.${one}`))]}
        sorted={COLUMNS.indexOf(by) + 1}
        rows={shown.map(({ tool, sums }) => ({
          key: tool.name,
          cells: [
            <button key={tool.name} type="button" className="sorts" onClick={() => choose(tool.name)}>
              {tool.name}
            </button>,
            ...COLUMNS.map((one) => (
              <span key={one} className={one === "failures" && sums[one] > 0 ? "wrong" : ""}>
                {number(Math.round(sums[one]))}
              </span>
            )),
          ],
        }))}
      />
      {more}
    </Card>
  );
}

function Unused({ tools }: { tools: ToolDays[] }) {
  if (tools.length === 0) return null;
  const costly = tools.toSorted((one, other) => other.schemaTokens - one.schemaTokens);
  const tokens = tools.reduce((sum, one) => sum + one.schemaTokens, 0);
  return (
    <Fold className="card" title={t("usage.unused", { n: tools.length, tokens })}>
      {() => (
        <ul className="versions">
          {costly.map((tool) => (
            <li key={tool.name} className="long">
              <Link to={toolPath(tool)}>{tool.name}</Link>
              <span className="muted">{number(tool.schemaTokens)}</span>
            </li>
          ))}
        </ul>
      )}
    </Fold>
  );
}
