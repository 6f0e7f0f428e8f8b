import { keepPreviousData } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { Command } from "cmdk";
import { useEffect, useState } from "react";
import { api, type ToolItem } from "../api/client";
import { logOut } from "../api/session";
import { PAGES } from "../pages";
import { toolPath } from "../pages/tools/paths";
import { useModal } from "./Dialog";
import { plain } from "./json";
import { Button } from "./small";
import { useRead } from "./read";
import { chooseLanguage, language, t, translated } from "../text";
import { applyTheme, THEMES } from "./theme";

const FEW = 8;
type Action = { id: string; label: string; run: () => void };

/** Ctrl-K: bundles, the latest runs, pages and actions that contain the words, and tools as the server's search ranks them.
 * With `pick` it only chooses a tool. */
export default function Palette({ close, pick }: { close: () => void; pick?: (tool: ToolItem) => void }) {
  const [words, setWords] = useState("");
  const [selected, setSelected] = useState("");
  const dialog = useModal();
  const navigate = useNavigate();
  const wanted = words.trim().toLowerCase();
  const found = useRead(
    ["tools", "palette", words],
    () => api.GET("/tools/search", { params: { query: { q: words, pageSize: FEW } } }),
    { enabled: wanted !== "", placeholderData: keepPreviousData },
  );
  const more = { enabled: pick === undefined && wanted !== "" };
  const query = { includeDisabled: true };
  const bundles = useRead(["bundles"], () => api.GET("/tools/bundles", { params: { query } }), more);
  const runs = useRead(["runs", "palette"], () => api.GET("/runs"), more);
  useEffect(() => {
    // It would choose the list around the field, which can have the focus too.
    dialog.current?.querySelector("input")?.focus();
  }, [dialog]);

  const go = (to: string, search: object = {}) => () => void navigate({ to, search: search as never });
  const pages: Action[] = PAGES.flatMap(({ path, title, action = title }) =>
    action === undefined ? [] : [{ id: path, label: t(action), run: go(path) }],
  );
  const actions: Action[] = [
    ...THEMES.map((theme) => ({
      id: `theme ${theme}`,
      label: `${t("app.theme")}: ${t(`app.theme.${theme}`)}`,
      run: () => applyTheme(theme),
    })),
    { id: "language", label: language === "de" ? "English" : "Deutsch", run: () => chooseLanguage(language === "de" ? "en" : "de") },
    { id: "logout", label: t("app.logout"), run: () => void logOut() },
  ];
  const tools: Action[] = (found.data?.tools ?? []).map((tool) => {
    const { title } = translated(tool);
    return { id: tool.name, label: title === tool.name ? title : `${title} · ${tool.name}`, run: pick === undefined ? go(toolPath(tool)) : () => pick(tool) };
  });
  const named: Action[] = (bundles.data?.bundles ?? []).map((one) => ({ id: one.id, label: translated(one).title, run: go("/tools", { bundleIDs: one.id }) }));
  const begun = (runs.data?.runs ?? []).map(({ id, agent, prompt }) => ({ id, label: plain(`${agent}: ${prompt.slice(0, 80)}`), run: go(`/runs/${id}`) }));
  const matching = (listed: Action[]) => listed.filter(({ label }) => label.toLowerCase().includes(wanted));
  const few = (listed: Action[]) => (wanted === "" ? [] : listed.slice(0, FEW));

  const groups = [
    { heading: t("page.tools"), listed: few(tools) },
    ...(pick === undefined
      ? [
          { heading: t("tools.filter.bundleIDs"), listed: few(matching(named)) },
          { heading: t("page.runs"), listed: few(matching(begun)) },
          { heading: t("palette.pages"), listed: matching(pages) },
          { heading: t("palette.actions"), listed: matching(actions) },
        ]
      : []),
  ].filter(({ listed }) => listed.length > 0);
  // What was selected may have left the list, which changes when an answer comes.
  const values = groups.flatMap(({ heading, listed }) => listed.map(({ id }) => `${heading} ${id}`));
  const value = values.includes(selected) ? selected : (values[0] ?? "");

  return (
    <dialog ref={dialog} className="palette" aria-label={t("app.search")} onClose={close}>
      <Command shouldFilter={false} label={t("app.search")} value={value} onValueChange={setSelected}>
        <div className="palette-head">
          <Command.Input value={words} onValueChange={setWords} placeholder={t(pick === undefined ? "palette.hint" : "tools.search")} />
          <Button look="quiet" onClick={close}>{t("palette.close")}</Button>
        </div>
        <Command.List>
          {wanted !== "" && !found.isFetching && <Command.Empty>{t("palette.none")}</Command.Empty>}
          {groups.map(({ heading, listed }) => (
            <Command.Group key={heading} heading={heading}>
              {listed.map(({ id, label, run }) => (
                <Command.Item
                  key={id}
                  value={`${heading} ${id}`}
                  onSelect={() => {
                    close();
                    run();
                  }}
                >
                  {label}
                </Command.Item>
              ))}
            </Command.Group>
          ))}
        </Command.List>
      </Command>
    </dialog>
  );
}
