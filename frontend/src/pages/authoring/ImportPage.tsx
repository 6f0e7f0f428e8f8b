import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, data } from "../../api/client";
import { Code } from "../../parts/Code";
import { copy, Form, Line, Lines, Tabs } from "../../parts/fields";
import { Heading } from "../../parts/Heading";
import { Failure } from "../../parts/states";
import { t } from "../../text";
import "./build.css";
import { given } from "./drafts";
import { OpenApi } from "./OpenApi";
import { Zip } from "./Zip";

const SOURCES = { openapi: OpenApi, curl: Curl, zip: Zip, mcp: Server } as const;
type Source = keyof typeof SOURCES;

/** Tools of other places: an OpenAPI document, a command of curl, an exported bundle, an MCP server. */
export function Page() {
  const { source = "openapi" } = useSearch({ strict: false }) as { source?: Source };
  const navigate = useNavigate();
  const Shown = SOURCES[source];
  return (
    <div className="imports">
      <Heading text={t("import.title")} />
      <Tabs
        value={source}
        change={(one) => void navigate({ to: "/tools/import", replace: true, search: { source: one } as never })}
        of={Object.keys(SOURCES) as Source[]}
        text={(one) => t(`import.${one}`)}
      />
      <section className="card report" aria-label={t(`import.${source}`)}>
        <p className="muted">{t(`import.${source}.about`)}</p>
        <Shown />
      </section>
    </div>
  );
}

function Curl() {
  const [text, setText] = useState("");
  const [failure, setFailure] = useState<unknown>(null);
  const navigate = useNavigate();
  const read = async () => {
    try {
      const { manifest, notes } = await data(api.POST("/import/curl", { body: { text } }));
      Object.assign(given, { text: manifest, notes });
      await navigate({ to: "/tools/new", search: { how: "given" } as never });
    } catch (error) {
      setFailure(error);
    }
  };
  return (
    <Form submit={() => void read()}>
      <Lines label={t("import.curl.text")} dir="ltr" rows={8} spellCheck={false} value={text} change={setText} />
      {failure !== null && <Failure error={failure} />}
      <button type="submit" className="button primary" disabled={text.trim() === ""}>
        {t("import.curl.make")}
      </button>
    </Form>
  );
}

const quoted = (word: string) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`);

/** A server is a program with this person's rights, so it is added where trust is given: in a terminal. */
function Server() {
  const [name, setName] = useState("");
  const [start, setStart] = useState("");
  const isUrl = /^https?:/.test(start);
  const made = `toolcrib servers add ${quoted(name || "NAME")} ${isUrl ? `--url ${quoted(start)}` : `-- ${start || "COMMAND"}`}`;
  return (
    <Form submit={() => void copy(made)}>
      <Line label={t("form.key")} value={name} change={setName} />
      <Line label={t("import.mcp.start")} dir="ltr" value={start} placeholder="uvx mcp-server-time" change={setStart} />
      <Code text={made} />
      <button type="submit" className="button">
        {t("import.copy")}
      </button>
    </Form>
  );
}
