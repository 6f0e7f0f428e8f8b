/** Lists that the server gives in pages. */

import { type InfiniteData, keepPreviousData, useInfiniteQuery, type UseInfiniteQueryResult } from "@tanstack/react-query";
import { type ReactNode, useEffect, useEffectEvent, useRef, useState } from "react";
import { t } from "../text";
import { Button } from "./small";
import { Failure, Loading } from "./states";

/** Read the first page of a list, and further ones as they are asked for. */
export function usePages<Page extends { nextPageToken?: string | null }>(
  queryKey: readonly unknown[],
  read: (pageToken: string | undefined) => Promise<Page>,
  refetchInterval?: number,
) {
  return useInfiniteQuery({
    queryKey,
    queryFn: ({ pageParam }: { pageParam: string | undefined }) => read(pageParam),
    initialPageParam: undefined,
    getNextPageParam: (page) => page.nextPageToken ?? undefined,
    placeholderData: keepPreviousData,
    refetchInterval,
  });
}

type Props<Page, Row> = {
  pages: UseInfiniteQueryResult<InfiniteData<Page>>;
  rows: (page: Page) => readonly Row[];
  none: ReactNode;
  children: (row: Row, index: number) => ReactNode;
};

/** The rows of all pages that were read, or the state in their place. */
export function Pages<Page, Row>({ pages, rows, none, children }: Props<Page, Row>) {
  const found = pages.data?.pages.flatMap(rows);
  return (
    <>
      {pages.isError && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {found?.length === 0 && none}
      <ul className="rows">{found?.map(children)}</ul>
      {pages.hasNextPage && <More load={() => void pages.fetchNextPage()} busy={pages.isFetchingNextPage} />}
    </>
  );
}

/** Return the part of a long list that was scrolled to, and the button for more of it. */
export function useSome<T>(all: readonly T[], step = 50): [readonly T[], ReactNode] {
  const [most, setMost] = useState(step);
  return [all.slice(0, most), all.length > most && <More load={() => setMost(most + step)} />];
}

/** A button that presses itself when it comes into view. */
function More({ load, busy = false }: { load: () => void; busy?: boolean }) {
  const button = useRef<HTMLButtonElement>(null);
  const seen = useEffectEvent(load);
  useEffect(() => {
    const watching = new IntersectionObserver(([entry]) => entry?.isIntersecting && seen(), { rootMargin: "400px" });
    if (button.current !== null) watching.observe(button.current);
    return () => watching.disconnect();
  }, []);
  return (
    <Button ref={button} className="more" disabled={busy} onClick={load}>
      {t("tools.more")}
    </Button>
  );
}
