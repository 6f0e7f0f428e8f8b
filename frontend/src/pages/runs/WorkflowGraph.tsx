import { api, type Schemas } from "../../api/client";
import { Card, useRead } from "../../parts";
import { t } from "../../text";
import { stateOf, type Step, steps } from "./graph";

const [WIDTH, HEIGHT, ACROSS, DOWN] = [176, 64, 48, 16];

/** The steps of a workflow in columns, with their states in a run. */
export function WorkflowGraph({ name, run }: { name: string; run: Schemas["Timeline"] }) {
  const found = useRead(["workflows", name], () => api.GET("/workflows/{workflow}", { params: { path: { workflow: name } } }));
  // Without it, because it is gone, the timeline still has everything.
  if (found.data === undefined) return null;
  const placed = steps(found.data);
  const at = new Map(placed.map((step) => [step.id, step]));
  const width = (Math.max(0, ...placed.map(({ column }) => column)) + 1) * (WIDTH + ACROSS) - ACROSS;
  const height = (Math.max(0, ...placed.map(({ row }) => row)) + 1) * (HEIGHT + DOWN) - DOWN;
  return (
    <Card title={t("recipe.steps")}>
      <div className="graph" tabIndex={0} dir="ltr">
        <svg viewBox={`0 0 ${width} ${height}`} width={width} height={height} aria-hidden="true">
          {placed.flatMap((step) =>
            step.needs.map((need) => <Edge key={`${need} ${step.id}`} from={at.get(need)} to={step} />),
          )}
        </svg>
        <ol style={{ width, height }}>
          {placed.map((step) => (
            <Box key={step.id} step={step} run={run} />
          ))}
        </ol>
      </div>
    </Card>
  );
}

function Edge({ from, to }: { from: Step | undefined; to: Step }) {
  if (from === undefined) return null;
  const [x, y] = [from.column * (WIDTH + ACROSS) + WIDTH, from.row * (HEIGHT + DOWN) + HEIGHT / 2];
  const [endX, endY] = [to.column * (WIDTH + ACROSS), to.row * (HEIGHT + DOWN) + HEIGHT / 2];
  const middle = endX - ACROSS / 2;
  return <path d={`M${x} ${y}H${middle - 8}C${middle} ${y} ${middle} ${endY} ${middle + 8} ${endY}H${endX}`} />;
}

function Box({ step, run }: { step: Step; run: Schemas["Timeline"] }) {
  const { state, ended, all } = stateOf(step.id, run);
  return (
    <li
      className={`step-box ${state}`}
      style={{ left: step.column * (WIDTH + ACROSS), top: step.row * (HEIGHT + DOWN), width: WIDTH, height: HEIGHT }}
    >
      <strong>{step.id}</strong>
      <span className="muted">{step.calls}</span>
      <span>
        {t(`graph.${state}`)} {all > 1 && t("graph.of", { ended, all })}
      </span>
      {step.needs.length > 0 && (
        <span className="visually-hidden">{t("graph.needs", { steps: step.needs.join(", ") })}</span>
      )}
    </li>
  );
}
