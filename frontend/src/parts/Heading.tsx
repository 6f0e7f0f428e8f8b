import { type ReactNode, useEffect } from "react";
import { api } from "../api/client";
import { useRead } from "./read";
import { t } from "../text";

/** Return how many calls wait for a person. */
export function useWaiting(): number {
  const { data: counts } = useRead(["counts"], () => api.GET("/counts"));
  return counts?.approvals ?? 0;
}

type Props = { text: string; title?: string; children?: ReactNode };

/** The heading of a page. The title of the window is its text or another one, with the number of calls that wait. */
export function Heading({ text, title = text, children }: Props) {
  const waiting = useWaiting();
  useEffect(() => {
    document.title = `${waiting === 0 ? "" : `(${waiting}) `}${title} · ${t("app.name")}`;
  }, [waiting, title]);
  return (
    <h1>
      {text}
      {children}
    </h1>
  );
}
