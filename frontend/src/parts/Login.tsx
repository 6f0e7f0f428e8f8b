import { useEffect } from "react";
import { begin } from "../api/session";
import { Button } from "./small";
import { t } from "../text";

/** Shown without a session: how to get one. */
export function Login() {
  useEffect(() => {
    document.title = t("app.name");
  }, []);
  return (
    <main className="stack login">
      <h1>{t("login.title")}</h1>
      <p>{t("login.how")}</p>
      <pre>toolcrib ui</pre>
      <p>{t("login.again")}</p>
      <Button look="primary" onClick={() => void begin()}>{t("state.retry")}</Button>
    </main>
  );
}
