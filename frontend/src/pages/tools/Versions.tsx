import { useQuery } from "@tanstack/react-query";
import { Link } from "@tanstack/react-router";
import { api, data, type Tool } from "../../api/client";
import { When } from "../../parts/small";
import { Shown } from "../../parts/states";
import { t } from "../../text";
import { toolPath } from "./paths";

export function Versions({ tool }: { tool: Tool }) {
  const path = { bundleID: tool.bundleID, toolSlug: tool.slug };
  const versions = useQuery({
    queryKey: ["versions", path],
    queryFn: () => data(api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/versions", { params: { path } })),
  });
  return (
    <section className="card" aria-labelledby="versions">
      <h2 id="versions">{t("tool.versions")}</h2>
      <Shown query={versions}>
        {(found) => (
          <ul className="versions">
            {found.versions.map((one) => (
              <li key={one.version}>
                {one.version === tool.version ? (
                  <strong aria-current="true">{one.version}</strong>
                ) : (
                  <Link to={toolPath(one)}>{one.version}</Link>
                )}
                <When moment={one.modifiedAt} />
              </li>
            ))}
          </ul>
        )}
      </Shown>
    </section>
  );
}
