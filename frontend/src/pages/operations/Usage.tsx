import { keepPreviousData } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, type Schemas } from "../../api/client";
import { Card, Choice, Fold, Shown, Table, useAddress, useRead, useSome } from "../../parts";
import { language, number, t } from "../../text";
import { toolPath } from "../tools/paths";
import { byDay, firstDay, NUMBERS, type Shows, sumOf } from "./days";

type ToolDays = Schemas["ToolDays"];
const DAYS = [7, 30, 90];
const FEW = 20;
const COLUMNS = [...NUMBERS, "schemaTokens"] as const;

/** Calls, errors, durations and tokens by tool and day; what is used most, and what is not used. */
export function Usage() {
  const [address, change] = useAddress("/operations/usage", ["days", "shows", "tool", "by"]);
  const days = DAYS.find((one) => String(one) === address.days) ?? 7;
  const shows = NUMBERS.find((one) => one === address.shows) ?? "calls";
  const by = COLUMNS.find((one) => one === address.by) ?? "calls";
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
        const picked = tools.find((tool) => tool.name === chosen);
        const counted = picked === undefined ? called : [picked];
        return (
          <>
            <div className="fields">
              <Choice label={t("usage.days")} value={days} change={(one) => change({ days: String(one) })} of={DAYS} text={(one) => t("usage.days.n", { n: one })} />
              <Choice
                label={t("filter.tool")}
                value={chosen}
                change={(tool) => change({ tool })}
                of={["", ...called.map(({ name }) => name)]}
                text={(one) => one || t("usage.all")}
              />
              <Choice label={t("usage.shows")} value={shows} change={(one) => change({ shows: one })} of={NUMBERS} text={(one) => t(`usage.${one}`)} />
              {picked !== undefined && <Link to={toolPath(picked)}>{picked.name}</Link>}
            </div>
            {called.length === 0 ? (
              <p className="muted">{t("usage.none")}</p>
            ) : (
              <>
                <Days tools={counted} first={since} shows={shows} />
                <Top tools={called} by={by} setBy={(one) => change({ by: one })} />
              </>
            )}
            <Unused tools={tools.filter((tool) => tool.days.length === 0)} />
          </>
        );
      }}
    </Shown>
  );
}

const rounded = (value: number | null) => (value === null ? "–" : number(Math.round(value)));

const BAR = 10;
const HEIGHT = 100;

/** The days as bars, and the same numbers as a table. */
function Days({ tools, first, shows }: { tools: ToolDays[]; first: string; shows: Shows }) {
  const days = byDay(tools, first);
  const most = Math.max(1, ...days.map(({ sums }) => sums[shows] ?? 0));
  const drawn: Shows[] = shows === "calls" ? ["calls", "failures"] : [shows];
  const format = new Intl.DateTimeFormat(language === "de" ? "de" : "en", { month: "short", day: "numeric", timeZone: "UTC" });
  return (
    <section className="card days" aria-label={t(`usage.${shows}`)}>
      <figure>
        <figcaption>
          {t(`usage.${shows}`)} <span className="muted">≤ {number(Math.round(most))}</span>
        </figcaption>
        <svg viewBox={`0 0 ${days.length * BAR} ${HEIGHT}`} preserveAspectRatio="none" aria-hidden="true">
          {days.map(({ begins, sums }, index) =>
            drawn.map((one) => {
              const height = (HEIGHT * (sums[one] ?? 0)) / most;
              const place = { x: index * BAR + 1, width: BAR - 2, y: HEIGHT - height, height };
              return <rect key={`${begins} ${one}`} {...place} className={one === "failures" ? "failed" : "all"} />;
            }),
          )}
        </svg>
        <p className="small ends" dir="ltr" aria-hidden="true">
          <span>{format.format(Date.parse(first))}</span>
          <span>{format.format(Date.parse(days.at(-1)?.begins ?? first))}</span>
        </p>
      </figure>
      <div className="scrolls" tabIndex={0}>
        <Table
          head={[t("usage.day"), ...NUMBERS.map((one) => t(`usage.${one}`))]}
          rows={days.toReversed().map(({ begins, sums }) => ({
            key: begins,
            cells: [format.format(Date.parse(begins)), ...NUMBERS.map((one) => rounded(sums[one]))],
          }))}
        />
      </div>
      <p className="muted note">{t("usage.slowest")}</p>
    </section>
  );
}

/** The tools that were called, by any of their numbers. */
function Top({ tools, by, setBy }: { tools: ToolDays[]; by: (typeof COLUMNS)[number]; setBy: (by: (typeof COLUMNS)[number]) => void }) {
  const rows = tools
    .map((tool) => ({ tool, sums: { ...sumOf(tool.days), schemaTokens: tool.schemaTokens } }))
    .toSorted((one, other) => (other.sums[by] ?? 0) - (one.sums[by] ?? 0));
  const [shown, more] = useSome(rows, FEW);
  return (
    <Card className="stack" title={t("usage.top")}>
      <Choice className="sort" label={t("tools.sort")} value={by} change={setBy} of={COLUMNS} text={(one) => t(`usage.${one}`)} />
      <Table
        head={[t("filter.tool"), ...COLUMNS.map((one) => t(`usage.${one}`))]}
        sorted={COLUMNS.indexOf(by) + 1}
        rows={shown.map(({ tool, sums }) => ({
          key: tool.name,
          cells: [
            <Link key={tool.name} to="/operations/usage" search={((address: object) => ({ ...address, tool: tool.name })) as never}>{tool.name}</Link>,
            ...COLUMNS.map((one) => (
              <span key={one} className={one === "failures" && sums[one] > 0 ? "wrong" : ""}>
                {rounded(sums[one])}
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
