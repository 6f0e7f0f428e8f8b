import { Link } from "@tanstack/react-router";
import type { ToolItem } from "../../api/client";
import { Badge, plain, When } from "../../parts";
import { said, t, translated } from "../../text";
import { toolPath } from "./paths";
import { Toggle } from "./Toggle";

export function ToolRow({ tool }: { tool: ToolItem }) {
  const { title, about } = translated(tool);
  const touches = tool.touches.map(said);
  return (
    <li className="row">
      <div className="row-main">
        <p className="line">
          <Link to={toolPath(tool)} className="row-title">{plain(title)}</Link>
          {title !== tool.name && <code className="muted">{tool.name}</code>}
          <Marks tool={tool} />
        </p>
        <p className="row-about">{plain(about)}</p>
        <p className="line row-facts">
          <span>{tool.kind}</span>
          {touches.length > 0 && <span className="one-line" title={touches.join("\n")}>{touches.join(" · ")}</span>}
        </p>
      </div>
      <p className="row-usage">
        <span>{tool.callCount === 0 ? t("tools.never") : t("tools.calls", { n: tool.callCount })}</span>
        {tool.lastCalledAt !== null && <When moment={tool.lastCalledAt} />}
      </p>
      <Toggle tool={tool} />
    </li>
  );
}

/** What keeps a tool from running at once. */
export function Marks({ tool }: { tool: ToolItem }) {
  return (
    <>
      {tool.trust === "new" && <Badge tone="warn">{t("tools.waits")}</Badge>}
      {tool.trust === "changed" && <Badge tone="warn">{t("tools.changed")}</Badge>}
      {tool.availability === "unavailable" && <Badge tone="bad">{t("tools.unavailable")}</Badge>}
      {tool.asks !== null && <Badge>{t("tools.asks")}</Badge>}
    </>
  );
}
