import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { announce, Button, Dialog, useAction } from "../../parts";
import { t } from "../../text";

const CHANGES = ["cancel", "retry"] as const;
type Asked = { change: (typeof CHANGES)[number]; count: number };

/** The buttons that cancel or retry all runs that the filters match, once their number was confirmed. */
export function ChangeAll({ query }: { query: Schemas["RunsChange"] }) {
  const [asked, setAsked] = useState<Asked | null>(null);
  const post = (change: Asked["change"], atMost?: number) => data(api.POST(`/runs/${change}`, { body: { ...query, atMost } }));
  const count = useAction((change: Asked["change"]) => post(change), {
    done: (found, change) => (found.count === 0 ? announce(t("runs.change.none")) : setAsked({ change, count: found.count })),
  });
  const act = useAction(({ change, count: atMost }: Asked) => post(change, atMost), {
    done: ({ done, refused }) => {
      setAsked(null);
      announce([t("runs.change.done", { n: done.length }), ...Object.values(refused)].join(" "));
    },
  });
  const title = asked === null ? "" : t(`runs.${asked.change}`, { n: asked.count });
  return (
    <div className="line">
      {CHANGES.map((change) => (
        <Button key={change} disabled={count.isPending} onClick={() => count.mutate(change)}>{t(`runs.${change}.all`)}</Button>
      ))}
      {asked !== null && (
        <Dialog title={`${title}?`} close={() => setAsked(null)}>
          <Button look="primary" disabled={act.isPending} onClick={() => act.mutate(asked)}>{title}</Button>
        </Dialog>
      )}
    </div>
  );
}
