import { Link, useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, data, type Tool } from "../../api/client";
import { announce, Button, Decide, Dialog, Save, useAction } from "../../parts";
import { t } from "../../text";
import { textOf } from "../authoring/drafts";
import { useCallers } from "./Callers";
import { pathOf, wordsOf } from "./paths";

/** What can be done with a tool beside calling it. */
export function Actions({ tool }: { tool: Tool }) {
  const [deleting, setDeleting] = useState(false);
  const own = tool.source === "user";
  return (
    <div className="line">
      {textOf(tool) !== null && (
        <Link to="/tools/new" search={{ from: wordsOf(tool) } as never} className="button">
          {t(own ? "tool.edit" : "tool.copy")}
        </Link>
      )}
      {own && (
        <>
          <Save label={t("tool.export")} path={`/tools/bundles/${tool.bundleID}/export`} />
          <Button onClick={() => setDeleting(true)}>{t("tool.delete")}</Button>
        </>
      )}
      {deleting && <Deletion tool={tool} close={() => setDeleting(false)} />}
    </div>
  );
}

function Deletion({ tool, close }: { tool: Tool; close: () => void }) {
  const navigate = useNavigate();
  const users = useCallers(tool).data?.usedBy ?? [];
  const remove = useAction(
    async () => {
      // First, as this page would ask for the tool again at once.
      await navigate({ to: "/tools" });
      return data(api.DELETE("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}", { params: { path: pathOf(tool) } }));
    },
    {
      done: () => announce(t("tool.deleted", { name: tool.name })),
      refused: ({ message }) => t("tool.delete.refused", { name: tool.name, reason: message }),
    },
  );
  return (
    <Dialog title={t("tool.delete.title", { name: tool.name })} close={close}>
      <ul className="bullets">
        <li>{t(users.length === 0 ? "tool.delete.calls" : "tool.delete.users", { users: users.join(", ") })}</li>
        <li>{t("tool.delete.versions")}</li>
        <li>{t("tool.delete.trust")}</li>
        <li>{t("tool.delete.trash")}</li>
        {tool.callCount > 0 && <li>{t("tool.delete.used", { n: tool.callCount })}</li>}
      </ul>
      <Decide label={t("tool.delete")} act={() => remove.mutate()} close={close} />
    </Dialog>
  );
}
