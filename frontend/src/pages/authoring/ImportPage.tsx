import { useNavigate, useSearch } from "@tanstack/react-router";
import { useState } from "react";
import { api, data } from "../../api/client";
import { Heading } from "../../parts/Heading";
import { announce } from "../../parts/notices";
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
      <div className="tabs">
        {(Object.keys(SOURCES) as Source[]).map((one) => (
          <button
            key={one}
            type="button"
            className="button"
            aria-pressed={one === source}
            onClick={() => void navigate({ to: "/tools/import", replace: true, search: { source: one } as never })}
          >
            {t(`import.${one}`)}
          </button>
        ))}
      </div>
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
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void read();
      }}
    >
      <label className="field-stack">
        <span>{t("import.curl.text")}</span>
        <textarea dir="ltr" rows={8} spellCheck={false} value={text} onChange={(event) => setText(event.target.value)} />
      </label>
      {failure !== null && <Failure error={failure} />}
      <button type="submit" className="button primary" disabled={text.trim() === ""}>
        {t("import.curl.make")}
      </button>
    </form>
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
    <form onSubmit={(event) => event.preventDefault()}>
      <label className="field-stack">
        <span>{t("form.key")}</span>
        <input value={name} onChange={(event) => setName(event.target.value)} />
      </label>
      <label className="field-stack">
        <span>{t("import.mcp.start")}</span>
        <input dir="ltr" value={start} placeholder="uvx mcp-server-time" onChange={(event) => setStart(event.target.value)} />
      </label>
      <pre tabIndex={0} dir="ltr">
        {made}
      </pre>
      <button type="button" className="button" onClick={() => void navigator.clipboard.writeText(made).then(() => announce(t("test.copied")))}>
        {t("import.copy")}
      </button>
    </form>
  );
}
