import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Badge, Button, Choice, Empty, Pages, plain, Row, useAction, usePages, When } from "../../parts";
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
  const pages = usePages(
    ["messages", query],
    (pageToken) => data(api.GET("/messages", { params: { query: { ...query, pageToken } } })),
    AGAIN_MS,
  );
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
      <Pages pages={pages} rows={(page) => page.messages} none={<Empty title={t("messages.none")} />}>
        {(one) => <MessageRow key={one.id} message={one} />}
      </Pages>
    </>
  );
}

function MessageRow({ message: { id, data: said, state, error, queuedAt } }: { message: Message }) {
  const retry = useAction<void>(() => data(api.POST("/messages/{messageId}/retry", { params: { path: { messageId: id } } })));
  const { channel, chatId, text } = said as Record<string, string | undefined>;
  return (
    <Row
      begin={<Badge tone={TONES[state]}>{t(`messages.${state}`)}</Badge>}
      title={plain(channel ?? "")}
      marks={<span className="muted">{plain(chatId ?? t("messages.owner"))}</span>}
      facts={[<code key="id">{id}</code>, <When key="queued" moment={queuedAt} />]}
      end={state === "dead" && <Button disabled={retry.isPending} onClick={() => retry.mutate()}>{t("messages.retry")}</Button>}
    >
      <p className="row-about">{plain((text ?? "").slice(0, 300))}</p>
      {error !== "" && <p className="wrong">{plain(error)}</p>}
    </Row>
  );
}
