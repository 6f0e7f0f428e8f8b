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
  const row = (place: Place, about: string, moment: string | null) => (
    <li key={JSON.stringify(place)} className="row">
      <div className="row-main">
        <strong>{place.name}</strong>
        <p className="row-facts">
          <span>{about}</span>
          {moment !== null && <When moment={moment} />}
        </p>
      </div>
      <button type="button" className="button" aria-label={t("trash.restore.one", { name: place.name })} onClick={() => mutate(place)}>
        {t("trash.restore")}
      </button>
    </li>
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
              {bundles.map((one) => row({ bundleID: one.id, name: one.displayName || one.slug }, t("tool.bundle"), one.softDeletedAt))}
              {tools.map(({ bundleID, slug, version, displayName, deletedAt, deletedBy }) =>
                row({ bundleID, toolSlug: slug, v: version, name: `${displayName || slug} ${version}` }, deletedBy, deletedAt),
              )}
            </ul>
          )
        }
      </Shown>
    </div>
  );
}
