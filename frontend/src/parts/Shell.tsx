import { Link, Outlet, useRouterState } from "@tanstack/react-router";
import { lazy, Suspense, useEffect, useRef, useState } from "react";
import { useChanges } from "../api/changes";
import { logOut } from "../api/session";
import { PAGES } from "../pages";
import { chooseLanguage, LANGUAGES, language, t } from "../text";
import { Choice } from "./fields";
import { useWaiting } from "./Heading";
import { Notices } from "./notices";
import { Badge, Button, Icon } from "./small";
import { applyTheme, currentTheme, THEMES } from "./theme";

const loadPalette = () => import("./Palette");
const Palette = lazy(loadPalette);
const SEARCH = "M10.5 4a6.5 6.5 0 1 0 0 13 6.5 6.5 0 0 0 0-13zM15.5 15.5 21 21";

/** The frame of every page: navigation, the palette, and choices of this person. */
export function Shell() {
  const [palette, setPalette] = useState(false);
  const main = useRef<HTMLElement>(null);
  const path = useRouterState({ select: (state) => state.location.pathname });
  const busy = useRouterState({ select: (state) => state.isLoading });
  const waiting = useWaiting();
  const lost = useChanges();
  // What is typed right after its key is for it already.
  useEffect(() => void loadPalette(), []);

  useEffect(() => {
    const open = (event: KeyboardEvent) => {
      const typing = event.target instanceof HTMLElement && event.target.closest("input, textarea, select, dialog");
      const hotkey = (event.metaKey || event.ctrlKey) && event.key.toLowerCase() === "k";
      if (!hotkey && (event.key !== "/" || typing)) return;
      event.preventDefault();
      setPalette(true);
    };
    addEventListener("keydown", open);
    return () => removeEventListener("keydown", open);
  }, []);

  // A screen reader begins with the new page, as it would after loading one.
  const shown = useRef(path);
  useEffect(() => {
    if (shown.current !== path) main.current?.focus({ preventScroll: true });
    shown.current = path;
  }, [path]);

  return (
    <div className="shell">
      <button type="button" className="skip" onClick={() => main.current?.focus()}>
        {t("app.skip")}
      </button>
      <header className="bar">
        <Link to="/tools" className="brand">
          {t("app.name")}
        </Link>
        <Button className="search-hint end" onClick={() => setPalette(true)}>
          <Icon path={SEARCH} />
          <span>{t("app.search")}</span>
          <kbd>{t("app.search.keys")}</kbd>
        </Button>
      </header>
      <nav className="nav" aria-label={t("app.menu")}>
        {PAGES.map(
          ({ path: to, title, icon }) =>
            title !== undefined &&
            icon !== undefined && (
              <Link key={to} to={to} activeProps={{ className: "active" }}>
                <Icon path={icon} />
                <span>{t(title)}</span>
                {to === "/approvals" && waiting > 0 && (
                  <Badge tone="warn">
                    {waiting} <span className="visually-hidden">{t("approvals.waiting", { n: waiting })}</span>
                  </Badge>
                )}
              </Link>
            ),
        )}
      </nav>
      <main ref={main} id="main" tabIndex={-1} aria-busy={busy}>
        {lost && <p className="warnings offline" role="status">{`${t("state.offline")}. ${t("state.offline.hint")}`}</p>}
        <Outlet />
      </main>
      <Choices />
      <Notices />
      {palette && (
        <Suspense>
          <Palette close={() => setPalette(false)} />
        </Suspense>
      )}
    </div>
  );
}

function Choices() {
  const [theme, setTheme] = useState(currentTheme());
  return (
    <footer className="choices">
      <Choice
        label={t("app.theme")}
        value={theme}
        change={(next) => {
          applyTheme(next);
          setTheme(next);
        }}
        of={THEMES}
        text={(one) => t(`app.theme.${one}`)}
      />
      <Choice label={t("app.language")} value={language as "en" | "de"} change={chooseLanguage} of={["en", "de"]} text={(one) => LANGUAGES[one]} />
      <Button look="quiet" onClick={() => void logOut()}>{t("app.logout")}</Button>
    </footer>
  );
}
