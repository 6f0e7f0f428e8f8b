import { useEffect, useState } from "react";
import { api } from "../../api/client";
import { Empty, Heading, Rows, Shown, useRead } from "../../parts";
import { t } from "../../text";
import { groupsOf } from "./diff";
import { Grants } from "./Grants";
import { Request } from "./Request";
import { TrustInbox } from "./TrustInbox";
import "./approvals.css";

/** A card that has just come under the finger was not read: until then it takes no tap. */
const SETTLES_MS = 500;

/** The calls that wait for a person, what waits for trust, and the decisions in force. */
export function Page() {
  const pending = useRead(["approvals", "pending"], () => api.GET("/approvals", { params: { query: { status: "pending", pageSize: 256 } } }));
  const ids = pending.data?.approvals.map(({ id }) => id).join();
  const [settled, setSettled] = useState<typeof ids>();
  useEffect(() => {
    const timer = setTimeout(setSettled, SETTLES_MS, ids);
    return () => clearTimeout(timer);
  }, [ids]);
  return (
    <div className={ids === settled ? "approvals" : "approvals moved"}>
      <Heading text={t("page.approvals")} />
      <Shown query={pending}>
        {({ approvals }) => (
          <Rows className="stack" of={groupsOf(approvals)} none={<Empty title={t("approvals.none")} hint={t("approvals.none.hint")} />}>
            {(group) => <Request key={group[0]?.id} group={group} />}
          </Rows>
        )}
      </Shown>
      <TrustInbox />
      <Grants />
    </div>
  );
}
