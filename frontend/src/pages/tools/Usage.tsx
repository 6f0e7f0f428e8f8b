import { useQuery } from "@tanstack/react-query";
import { api, data, type Tool } from "../../api/client";
import { Shown } from "../../parts/states";
import { language, t } from "../../text";

const DAYS = 7;
const DAY_MS = 86_400_000;

/** Calls of the last days as bars, with the same numbers as a table. */
export function Usage({ tool }: { tool: Tool }) {
  const path = { bundleID: tool.bundleID, toolSlug: tool.slug, v: tool.version };
  const usage = useQuery({
    queryKey: ["usage", path],
    queryFn: () =>
      data(api.GET("/tools/bundles/{bundleID}/tools/{toolSlug}/version/{v}/usage", { params: { path } })),
  });
  return (
    <section className="card" aria-labelledby="usage">
      <h2 id="usage">{t("tool.usage")}</h2>
      <Shown query={usage}>
        {({ callCount, failureCount, hours }) => {
          const days = byDay(hours);
          const most = Math.max(1, ...days.map((day) => day.calls));
          return (
            <>
              <p>{t("tool.usage.total", { n: callCount, failures: failureCount })}</p>
              <table className="bars">
                <caption className="visually-hidden">{t("tool.usage")}</caption>
                <thead className="visually-hidden">
                  <tr>
                    <th scope="col">{t("tool.modified")}</th>
                    <th scope="col">{t("tool.usage")}</th>
                    <th scope="col">{t("tool.failed")}</th>
                  </tr>
                </thead>
                <tbody>
                  {days.map(({ day, calls, failures }) => (
                    <tr key={day}>
                      <th scope="row">{day}</th>
                      <td>
                        <svg viewBox="0 0 100 8" preserveAspectRatio="none" aria-hidden="true">
                          <rect className="all" width={(100 * calls) / most} height="8" />
                          <rect className="failed" width={(100 * failures) / most} height="8" />
                        </svg>
                        {calls}
                      </td>
                      <td className="visually-hidden">{failures}</td>
                    </tr>
                  ))}
                </tbody>
              </table>
            </>
          );
        }}
      </Shown>
    </section>
  );
}

type Hour = { begins: string; calls: number; failures: number };

function byDay(hours: Hour[]) {
  const format = new Intl.DateTimeFormat(language === "de" ? "de" : "en", { weekday: "short", day: "numeric" });
  const days = Array.from({ length: DAYS }, (_, index) => ({
    day: format.format(Date.now() - (DAYS - 1 - index) * DAY_MS),
    calls: 0,
    failures: 0,
  }));
  for (const { begins, calls, failures } of hours) {
    const day = days.find((one) => one.day === format.format(new Date(begins)));
    if (day !== undefined) {
      day.calls += calls;
      day.failures += failures;
    }
  }
  return days;
}
