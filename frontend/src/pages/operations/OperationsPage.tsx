import { Link, useLocation } from "@tanstack/react-router";
import type { ComponentType } from "react";
import { Heading } from "../../parts";
import { t } from "../../text";
import { Machine } from "./Machine";
import { Messages } from "./Messages";
import { PARTS, type Part } from "./parts";
import { Policy } from "./Policy";
import { Secrets } from "./Secrets";
import { Servers } from "./Servers";
import { Tokens } from "./Tokens";
import { Usage } from "./Usage";
import { Workers } from "./Workers";
import "./operations.css";

const SHOWN: Record<Part, ComponentType> = {
  usage: Usage,
  servers: Servers,
  secrets: Secrets,
  tokens: Tokens,
  policy: Policy,
  workers: Workers,
  messages: Messages,
  machine: Machine,
};

/** What keeps a project going, one part at a time. */
export function Page() {
  const { pathname } = useLocation();
  const part = PARTS.find((one) => pathname === `/operations/${one}`) ?? PARTS[0];
  const Shown = SHOWN[part];
  return (
    <div className="operations">
      <Heading text={t("page.operations")} title={t(`ops.${part}`)} />
      <nav className="parts" aria-label={t("page.operations")}>
        {PARTS.map((one) => (
          <Link key={one} to={`/operations/${one}`} aria-current={one === part ? "page" : undefined}>
            {t(`ops.${one}`)}
          </Link>
        ))}
      </nav>
      <Shown />
    </div>
  );
}
