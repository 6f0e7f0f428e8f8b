import { type ReactNode, useState } from "react";
import { api, data } from "../api/client";
import { t } from "../text";
import { useAction } from "./action";
import { Form, Line } from "./fields";
import { announce } from "./notices";
import { Button } from "./small";

/** A field that sets a secret of the project. Its value is never shown. */
export function SetSecret({ name, done, children }: { name: string; done?: () => void; children?: ReactNode }) {
  const [value, setValue] = useState("");
  const set = useAction(() => data(api.PUT("/secrets/{secretName}", { params: { path: { secretName: name } }, body: { value } })), {
    done: () => {
      setValue("");
      announce(t("secrets.done", { name }));
      done?.();
    },
  });
  return (
    <Form className="line entry-form" submit={() => set.mutate()}>
      <Line label={t("secrets.value", { name })} type="password" autoComplete="off" value={value} change={setValue} />
      <Button type="submit" disabled={set.isPending || value === ""}>{t("secrets.set")}</Button>
      {children}
    </Form>
  );
}
