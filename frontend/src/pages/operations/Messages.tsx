import { useInfiniteQuery, useMutation, useQueryClient } from "@tanstack/react-query";
import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Choice, More } from "../../parts/fields";
import { plain } from "../../parts/json";
import { announce } from "../../parts/notices";
import { Badge, When } from "../../parts/small";
import { Empty, Failure, Loading } from "../../parts/states";
import { t } from "../../text";

type Message = Schemas["MessageAnswer"];
const TONES = { queued: "warn", published: "", delivered: "good", dead: "bad", retried: "" } as const;
const STATES = ["queued", "published", "delivered", "dead", "retried"] as const;
const PAGE = 50;
const AGAIN_MS = 5_000;

/** The messages to people on channels, the newest first, and their states. */
export function Messages() {
  const [state, setState] = useState<(typeof STATES)[number] | "">("");
  const query = { state: state === "" ? undefined : state, pageSize: PAGE };
  const pages = useInfiniteQuery({
    queryKey: ["messages", query],
    queryFn: ({ pageParam: pageToken }: { pageParam: string | undefined }) =>
      data(api.GET("/messages", { params: { query: { ...query, pageToken } } })),
    initialPageParam: undefined,
    getNextPageParam: (page) => page.nextPageToken ?? undefined,
    refetchInterval: AGAIN_MS,
  });
  const messages = pages.data?.pages.flatMap((page) => page.messages) ?? [];
  return (
    <>
      <div className="toolbar">
        <Choice
          label={t("runs.state")}
          value={state}
          change={setState}
          of={["", ...STATES] as const}
          text={(one) => (one === "" ? t("runs.all") : t(`messages.${one}`))}
        />
      </div>
      {pages.isError && <Failure error={pages.error} retry={() => void pages.refetch()} />}
      {pages.isPending && <Loading />}
      {pages.data !== undefined && messages.length === 0 && <Empty title={t("messages.none")} />}
      <ul className="rows">
        {messages.map((one) => (
          <li key={one.id} className="row">
            <Badge tone={TONES[one.state]}>{t(`messages.${one.state}`)}</Badge>
            <Row message={one} />
          </li>
        ))}
      </ul>
      {pages.hasNextPage && <More load={() => void pages.fetchNextPage()} />}
    </>
  );
}

function Row({ message: { id, data: said, state, error, queuedAt } }: { message: Message }) {
  const client = useQueryClient();
  const retry = useMutation({
    mutationFn: () => data(api.POST("/messages/{messageId}/retry", { params: { path: { messageId: id } } })),
    onError: (failure: Error) => announce(failure.message),
    onSettled: () => client.invalidateQueries({ queryKey: ["messages"] }),
  });
  const { channel, chatId, text } = said as Record<string, string | undefined>;
  return (
    <div className="row-main">
      <p className="entry-head">
        <span className="row-title">{plain(channel ?? "")}</span>
        <span className="muted">{plain(chatId ?? t("messages.owner"))}</span>
        {state === "dead" && (
          <button type="button" className="button" disabled={retry.isPending} onClick={() => retry.mutate()}>
            {t("messages.retry")}
          </button>
        )}
      </p>
      <p className="row-about">{plain((text ?? "").slice(0, 300))}</p>
      {error !== "" && <p className="wrong">{plain(error)}</p>}
      <p className="row-facts">
        <code>{id}</code>
        <When moment={queuedAt} />
      </p>
    </div>
  );
}
