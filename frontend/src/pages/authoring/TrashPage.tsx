import { useMutation, useQuery, useQueryClient } from "@tanstack/react-query";
import { api, data } from "../../api/client";
import { Heading } from "../../parts/Heading";
import { announce } from "../../parts/notices";
import { When } from "../../parts/small";
import { Empty, Shown } from "../../parts/states";
import { t } from "../../text";
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
  const queries = useQueryClient();
  const trash = useQuery({ queryKey: ["tools", "trash"], queryFn: () => data(api.GET("/tools/trash")) });
  const { mutate } = useMutation({
    mutationFn: restore,
    onSuccess: (_, { name }) => announce(t("trash.restored", { name })),
    onError: (error, { name }) => announce(t("trash.refused", { name, reason: error.message })),
    onSettled: () => queries.invalidateQueries(),
  });
  const button = (place: Place) => (
    <button type="button" className="button" aria-label={t("trash.restore.one", { name: place.name })} onClick={() => mutate(place)}>
      {t("trash.restore")}
    </button>
  );
  return (
    <div className="build">
      <Heading text={t("trash.title")} />
      <p className="muted">{t("trash.about")}</p>
      <Shown query={trash}>
        {({ bundles, tools }) =>
          bundles.length + tools.length === 0 ? (
            <Empty title={t("trash.none")} />
          ) : (
            <ul className="rows">
              {bundles.map((one) => {
                const name = one.displayName || one.slug;
                return (
                  <li key={one.id} className="row">
                    <div className="row-main">
                      <strong>{name}</strong>
                      <p className="row-facts">
                        <span>{t("tool.bundle")}</span>
                        <When moment={one.softDeletedAt} />
                      </p>
                    </div>
                    {button({ bundleID: one.id, name })}
                  </li>
                );
              })}
              {tools.map(({ bundleID, slug, version, displayName, deletedAt, deletedBy }) => {
                const name = `${displayName || slug} ${version}`;
                return (
                  <li key={`${bundleID} ${slug} ${version}`} className="row">
                    <div className="row-main">
                      <strong>{name}</strong>
                      <p className="row-facts">
                        <span>{deletedBy}</span>
                        <When moment={deletedAt} />
                      </p>
                    </div>
                    {button({ bundleID, toolSlug: slug, v: version, name })}
                  </li>
                );
              })}
            </ul>
          )
        }
      </Shown>
    </div>
  );
}
