import { api, data, type Schemas } from "../../api/client";
import { announce, Button, Empty, Heading, Row, Rows, Shown, useAction, useRead, When } from "../../parts";
import { t, translated } from "../../text";
import "./build.css";

type Place = { bundleID: string; toolSlug?: string; v?: string; name: string };

async function restore({ bundleID, toolSlug, v }: Place): Promise<void> {
  if (toolSlug === undefined || v === undefined) {
    await data(api.POST("/tools/bundles/{bundleID}/restore", { params: { path: { bundleID } } }));
    return;
  }
  const path = { bundleID, toolSlug, v };
  await data(api.POST("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/restore", { params: { path } }));
}

/** What was deleted and can be restored. */
export function Page() {
  const trash = useRead(["tools", "trash"], () => api.GET("/tools/trash"));
  const { mutate } = useAction(restore, {
    done: (_, { name }) => announce(t("trash.restored", { name })),
    refused: (error, { name }) => t("trash.refused", { name, reason: error.message }),
  });
  return (
    <div className="build">
      <Heading text={t("trash.title")} />
      <p className="muted">{t("trash.about")}</p>
      <Shown query={trash}>
        {(found) => (
          <Rows of={rowsOf(found)} none={<Empty title={t("trash.none")} />}>
            {({ about, moment, ...place }) => (
              <Row
                key={JSON.stringify(place)}
                title={place.name}
                facts={[about, moment === null ? null : <When key="moment" moment={moment} />]}
                end={<Button aria-label={t("trash.restore.one", { name: place.name })} onClick={() => mutate(place)}>{t("trash.restore")}</Button>}
              />
            )}
          </Rows>
        )}
      </Shown>
    </div>
  );
}

function rowsOf({ bundles, tools }: Schemas["Trash"]): (Place & { about: string; moment: string | null })[] {
  return [
    ...bundles.map((one) => ({ bundleID: one.id, name: translated(one).title, about: t("tools.filter.bundleIDs"), moment: one.softDeletedAt })),
    ...tools.map((one) => ({ bundleID: one.bundleID, toolSlug: one.slug, v: one.version, name: `${translated(one).title} ${one.version}`, about: one.deletedBy, moment: one.deletedAt })),
  ];
}
