import { useState } from "react";
import { api, data, type Schemas, type Tool } from "../../api/client";
import { Button, Decide, Dialog, useAction } from "../../parts";
import { t } from "../../text";
import { TrustFacts } from "../approvals/TrustInbox";

/** A button that asks if this tool, as it is now, may touch what it does. */
export function TrustIt({ tool: { name } }: { tool: Tool }) {
  const [shown, setShown] = useState<Schemas["ToolTrust"] | null>(null);
  const close = () => setShown(null);
  const look = useAction(() => data(api.GET("/trust", { params: { query: { name } } })), {
    done: ({ tools }) => setShown(tools[0] ?? null),
  });
  const give = useAction((digest: string) => data(api.POST("/trust", { body: { tools: { [name]: digest } } })), { done: close });
  const label = t("trust.give", { name });
  return (
    <>
      <p>
        <Button look="primary" disabled={look.isPending} onClick={() => look.mutate()}>{label}</Button>
      </p>
      {shown !== null && (
        <Dialog title={label} close={close}>
          <p>{t("trust.about")}</p>
          <TrustFacts tool={shown} />
          <Decide label={label} busy={give.isPending} act={() => give.mutate(shown.digest)} close={close} />
        </Dialog>
      )}
    </>
  );
}
