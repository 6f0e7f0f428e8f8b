import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, data } from "../../api/client";
import { Form, Heading, Lines, Send, Tabs, useAction, useAddress } from "../../parts";
import { t } from "../../text";
import "./build.css";
import { given } from "./drafts";
import { NewServer } from "../operations/NewServer";
import { OpenApi } from "./OpenApi";
import { Zip } from "./Zip";

const SOURCES = { openapi: OpenApi, curl: Curl, zip: Zip, mcp: NewServer } as const;
const NAMES = Object.keys(SOURCES) as (keyof typeof SOURCES)[];

/** Tools of other places: an OpenAPI document, a command of curl, an exported bundle, an MCP server. */
export function Page() {
  const [address, change] = useAddress("/tools/import", ["source"]);
  const source = NAMES.find((one) => one === address.source) ?? "openapi";
  const Shown = SOURCES[source];
  return (
    <div className="imports">
      <Heading text={t("import.title")} />
      <Tabs
        value={source}
        change={(one) => change({ source: one })}
        of={NAMES}
        text={(one) => t(`import.${one}`)}
      />
      <section className="card stack report" aria-label={t(`import.${source}`)}>
        <p className="muted">{t(`import.${source}.about`)}</p>
        <Shown />
      </section>
    </div>
  );
}

function Curl() {
  const [text, setText] = useState("");
  const navigate = useNavigate();
  const { mutate, error } = useAction<void>(
    async () => {
      const { manifest, notes } = await data(api.POST("/import/curl", { body: { text } }));
      Object.assign(given, { text: manifest, notes });
      await navigate({ to: "/tools/new", search: { how: "given" } as never });
    },
    { refused: null },
  );
  return (
    <Form submit={mutate}>
      <Lines label={t("import.curl.text")} dir="ltr" rows={8} spellCheck={false} value={text} change={setText} />
      <Send label={t("import.curl.make")} disabled={text.trim() === ""} error={error} />
    </Form>
  );
}
