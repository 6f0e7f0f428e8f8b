import { useNavigate, useSearch } from "@tanstack/react-router";
import { api, data } from "../../api/client";
import { Button, Choice, Empty, Heading, Shown, useAction, useRead } from "../../parts";
import { t } from "../../text";
import { Composer } from "./Composer";
import { Turn } from "./Turn";
import "./chat.css";

const MOST = 100;

/** A conversation with an agent: a session whose runs are its turns. */
export function Page() {
  const agents = useRead(["agents"], () => api.GET("/agents"));
  return (
    <Shown query={agents}>
      {({ agents: found }) =>
        found[0] === undefined ? (
          <>
            <Heading text={t("page.chat")} />
            <Empty title={t("chat.none")} hint={t("chat.none.hint")} />
          </>
        ) : (
          <Chat names={found.map(({ name }) => name)} first={found[0].name} />
        )
      }
    </Shown>
  );
}

function Chat({ names, first }: { names: string[]; first: string }) {
  const { agent: chosen, session = "" } = useSearch({ strict: false }) as { agent?: string; session?: string };
  const navigate = useNavigate();
  const agent = names.find((name) => name === chosen) ?? first;
  const turns = useRead(
    ["runs", "session", session],
    () => api.GET("/runs", { params: { query: { sessionId: session, pageSize: MOST } } }),
    { enabled: session !== "" },
  );
  const send = useAction(
    (prompt: string) => data(api.POST("/runs", { body: { agent, prompt, sessionId: session || null, stream: true } })),
    { done: ({ sessionId }) => navigate({ to: "/chat", replace: true, search: { agent, session: sessionId } }), refused: null },
  );
  const runs = turns.data?.runs.toReversed() ?? [];

  return (
    <div className="chat">
      <div className="line chat-head">
        <Heading text={t("page.chat")} />
        <Choice className="sort" label={t("runs.agent")} value={agent} change={(one) => void navigate({ to: "/chat", search: { agent: one, session } })} of={names} />
        {session !== "" && (
          <Button onClick={() => void navigate({ to: "/chat", search: { agent } })}>{t("chat.new")}</Button>
        )}
      </div>
      {runs.length === 0 && <Empty title={t("chat.begin", { agent })} hint={t("chat.begin.hint")} />}
      <ol className="stack turns">
        {runs.map(({ id }) => (
          <Turn key={id} id={id} />
        ))}
      </ol>
      <Composer busy={send.isPending} send={(prompt) => send.mutateAsync(prompt)} />
      {/* Each further turn is scrolled to. */}
      <div key={runs.length} ref={(end) => end?.scrollIntoView({ block: "end" })} />
    </div>
  );
}
