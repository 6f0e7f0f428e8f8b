import { useState } from "react";
import type { Schemas } from "../api/client";
import { said, t } from "../text";
import { Check, chosenAfter } from "./fields";
import { plain } from "./json";
import { Bullets, Button } from "./small";

export type Grant = Schemas["Grant"];
type Props = {
  watched: Schemas["Watched"];
  /** What becomes of the chosen permissions, as the label of a button. */
  label: string;
  take: (grants: Grant[]) => void;
};

const GROUPS = ["needed", "missing", "unused"] as const;
const USES = ["reads", "writes", "hosts", "programs"] as const;

/** The permissions that an observed run needed or asked for, to take or leave one by one. */
export function Watched({ watched, label, take }: Props) {
  const [chosen, setChosen] = useState(() => new Set(watched.needed));
  // A host that is not known can be named by hand only.
  const groups = GROUPS.map((name) => [name, watched[name].filter((one) => name !== "missing" || one.permission !== "network")] as const);
  const never = [...watched.closed, ...watched.missing.filter((one) => one.permission === "network")];
  const all = groups.flatMap(([, grants]) => grants);
  return (
    <section className="stack" aria-labelledby="watched">
      <h3 id="watched">{t("watch.title")}</h3>
      <p className="muted">{t(all.length === 0 ? "watch.nothing" : "watch.about")}</p>
      {groups.map(
        ([name, grants]) =>
          grants.length > 0 && (
            <fieldset key={name}>
              <legend>{t(`watch.${name}`)}</legend>
              {grants.map((one) => (
                <Check key={`${one.permission} ${one.value}`} on={chosen.has(one)} change={(on) => setChosen(chosenAfter(chosen, one, on))}>
                  {plain(said(one.words ?? ""))} <small className="muted">{plain(said(one.why ?? ""))}</small>
                </Check>
              ))}
            </fieldset>
          ),
      )}
      {never.length > 0 && <Lines title={t("watch.closed")} lines={never.map((one) => `${said(one.words ?? "")}: ${said(one.why ?? "")}`)} />}
      <details>
        <summary>{t("watch.observed")}</summary>
        {USES.map((use) => (
          <Lines key={use} title={t(`watch.${use}`)} lines={watched.observed[use]} />
        ))}
      </details>
      {all.length > 0 && (
        <Button look="primary" onClick={() => take(all.filter((one) => chosen.has(one)))}>
          {label}
        </Button>
      )}
    </section>
  );
}

function Lines({ title, lines }: { title: string; lines: string[] }) {
  if (lines.length === 0) return null;
  return (
    <>
      <p>{title}</p>
      <Bullets of={lines} />
    </>
  );
}

/** Return the values of the chosen permissions at one place. */
export function valuesOf(grants: Grant[], permission: string): string[] {
  return grants.filter((one) => one.permission === permission).map(({ value }) => value);
}
