/** What stands in the place of data: it loads, there is none, or it cannot be had. */

import type { UseQueryResult } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { ApiError } from "../api/client";
import { Heading } from "./Heading";
import { Button } from "./small";
import { type Key, t } from "../text";

export function Loading() {
  return (
    <div className="loading" role="status">
      <span className="visually-hidden">{t("state.loading")}</span>
      <i />
      <i />
      <i />
    </div>
  );
}

export function Empty({ title = t("state.empty"), hint }: { title?: string; hint?: string }) {
  return (
    <div className="state">
      <p className="state-title">{title}</p>
      {hint !== undefined && <p>{hint}</p>}
    </div>
  );
}

export function Nothing() {
  return <Heading text={t("page.nothing")} />;
}

/** A page whose files could not be loaded, or that failed. */
export function Broken({ error }: { error: unknown }) {
  return (
    <>
      <Heading text={t("page.broken")} />
      <Failure error={error} retry={() => location.reload()} />
    </>
  );
}

const TITLES: Record<string, Key> = { denied: "state.forbidden" };

/** The reason of a failure in the words of the server, and what to do next. */
export function Failure({ error, retry }: { error: unknown; retry?: () => void }) {
  const known = error instanceof ApiError ? error : new ApiError("error", String(error));
  return (
    <div className="state failed" role="alert">
      <p className="state-title">{t(TITLES[known.code] ?? "state.error")}</p>
      {known.message !== "" && <p>{known.message}</p>}
      {known.hint !== "" && <p className="muted">{known.hint}</p>}
      {retry !== undefined && (
        <Button onClick={retry}>{t("state.retry")}</Button>
      )}
    </div>
  );
}

/** The data of a query, or the state in its place. */
export function Shown<T>({ query, children }: { query: UseQueryResult<T>; children: (found: T) => ReactNode }) {
  if (query.data !== undefined) return <>{children(query.data)}</>;
  if (query.isError) return <Failure error={query.error} retry={() => void query.refetch()} />;
  return <Loading />;
}
