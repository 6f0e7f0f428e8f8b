import { Link } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { api, type Tool } from "../../api/client";
import { Button, Card, Dialog, Loading, Shown, useRead, When } from "../../parts";
import { t } from "../../text";
import { textOf } from "../authoring/drafts";
import { toolPath } from "./paths";

const Diff = lazy(() => import("../../parts/Diff"));

export function Versions({ tool }: { tool: Tool }) {
  const [compared, setCompared] = useState<Tool | null>(null);
  const path = { bundleID: tool.bundleID, toolSlug: tool.slug };
  const versions = useRead(["tool", "versions", path], () => api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/versions", { params: { path } }));
  return (
    <Card title={t("tool.versions")}>
      <Shown query={versions}>
        {(found) => (
          <ul className="versions">
            {found.versions.map((one) => (
              <li key={one.version}>
                {one.version === tool.version ? (
                  <strong aria-current="true">{one.version}</strong>
                ) : (
                  <>
                    <Link to={toolPath(one)}>{one.version}</Link>
                    <Button look="quiet" aria-label={t("tool.compare", { version: one.version })} onClick={() => setCompared(one)}>
                      {t("trust.diff")}
                    </Button>
                  </>
                )}
                <When moment={one.modifiedAt} />
              </li>
            ))}
          </ul>
        )}
      </Shown>
      {compared !== null && (
        <Dialog title={t("tool.compared", { from: compared.version, to: tool.version })} close={() => setCompared(null)}>
          <Suspense fallback={<Loading />}>
            <Diff before={textOf(compared) ?? ""} after={textOf(tool) ?? ""} />
          </Suspense>
        </Dialog>
      )}
    </Card>
  );
}
