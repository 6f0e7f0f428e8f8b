/** Lists that the server gives in pages. */

import { type InfiniteData, keepPreviousData, useInfiniteQuery, useQueryClient } from "@tanstack/react-query";
import { type ReactNode, useEffect, useEffectEvent, useRef, useState } from "react";
import { t } from "../text";
import { Button } from "./small";
import { Failure, Loading } from "./states";

type Paged = { nextPageToken?: string | null };
/** The place of a page in its list. */
type Place = { token?: string; number: number; before?: Place };

/** Pages that are kept, and read again after a change: a list of any length stays quick to show and to read. */
const KEPT = 5;
/** What is nearer to what is seen is loaded. */
const MARGIN = "1000px";
/** About the height of a row, where rows were scrolled past. The browser keeps what is seen in its place. */
const ROW_REM = 4;

/** Read the first page of a list, and those around what is scrolled to. */
export function usePages<Page extends Paged>(
  queryKey: readonly unknown[],
  read: (pageToken: string | undefined) => Promise<Page>,
  refetchInterval?: number,
) {
  const client = useQueryClient();
  const pages = useInfiniteQuery<Page, Error, InfiniteData<Page, Place>, readonly unknown[], Place>({
    queryKey,
    queryFn: ({ pageParam }) => read(pageParam.token),
    initialPageParam: { number: 0 },
    getNextPageParam: ({ nextPageToken: token }, _, before) => (token == null ? undefined : { token, number: before.number + 1, before }),
    getPreviousPageParam: (_page, _pages, { before }) => before,
    maxPages: KEPT,
    placeholderData: keepPreviousData,
    refetchInterval,
  });
  const first = pages.data?.pageParams[0];
  const skipped = first?.number ?? 0;
  /** Load the page before those that are kept, or in their place an earlier one. */
  const back = async (number: number) => {
    if (number < skipped - 1) {
      let place = first;
      while (place !== undefined && place.number > number) place = place.before;
      client.setQueryData<typeof pages.data>(queryKey, (old) => old && place && { pages: old.pages.slice(0, 1), pageParams: [place] });
      return pages.refetch();
    }
    const { data } = await pages.fetchPreviousPage();
    // It has changed, and ends elsewhere now.
    return data?.pages[0]?.nextPageToken === data?.pageParams[1]?.token ? data : pages.refetch();
  };
  return { ...pages, back, skipped, busy: pages.isFetching || pages.isError };
}

type Props<Page extends Paged, Row> = {
  pages: ReturnType<typeof usePages<Page>>;
  rows: (page: Page) => readonly Row[];
  none: ReactNode;
  children: (row: Row, index: number) => ReactNode;
};

/** The rows of the pages that are kept, or the state in their place. */
export function Pages<Page extends Paged, Row>({ pages, rows, none, children }: Props<Page, Row>) {
  const found = pages.data?.pages.map(rows);
  const all = found?.flat();
  return (
    <>
      {pages.isError && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {all?.length === 0 && none}
      {pages.skipped > 0 && <Skipped pages={pages.skipped} rows={found?.[0]?.length ?? 0} load={(number) => void pages.back(number)} busy={pages.busy} />}
      <ul className="rows">{all?.map(children)}</ul>
      {pages.hasNextPage && <More load={() => void pages.fetchNextPage()} busy={pages.busy} />}
    </>
  );
}

/** Return the part of a long list that was scrolled to, and the button for more of it. */
export function useSome<T>(all: readonly T[], step = 50): [readonly T[], ReactNode] {
  const [most, setMost] = useState(step);
  return [all.slice(0, most), all.length > most && <More load={() => setMost(most + step)} />];
}

/** Call `load` whenever an element is near to what is seen, and nothing is loaded yet. */
function useNear<T extends Element>(load: (seen: DOMRectReadOnly) => void, busy: boolean) {
  const element = useRef<T>(null);
  const near = useEffectEvent(load);
  useEffect(() => {
    if (busy || element.current === null) return;
    const seen = (changes: IntersectionObserverEntry[]) => {
      const last = changes.at(-1);
      if (last?.isIntersecting) near(last.boundingClientRect);
    };
    const watching = new IntersectionObserver(seen, { rootMargin: MARGIN });
    watching.observe(element.current);
    return () => watching.disconnect();
  }, [busy]);
  return element;
}

/** The place of pages that were scrolled past: the one that comes into view is loaded again. */
function Skipped({ pages, rows, load, busy }: { pages: number; rows: number; load: (number: number) => void; busy: boolean }) {
  const near = ({ top, height }: DOMRectReadOnly) => load(Math.floor(Math.max(0, Math.min(-top / height, 1)) * pages));
  return <div ref={useNear<HTMLDivElement>(near, busy)} style={{ height: `${pages * rows * ROW_REM}rem` }} />;
}

/** A button that presses itself when it comes into view. */
function More({ load, busy = false }: { load: () => void; busy?: boolean }) {
  return (
    <Button ref={useNear<HTMLButtonElement>(load, busy)} className="more" disabled={busy} onClick={load}>
      {t("tools.more")}
    </Button>
  );
}
