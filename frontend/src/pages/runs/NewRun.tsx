import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { lazy, Suspense, useState } from "react";
import { ApiError, api, data } from "../../api/client";
import { Choice, Failure, Fold, Form, Lines, Loading, Send, useRead } from "../../parts";
import { t } from "../../text";

const SchemaForm = lazy(() => import("../../parts/SchemaForm/SchemaForm"));
const WORKFLOW = "workflow:";

/** Starts a run of any agent or workflow. */
export function NewRun() {
  return (
    <Fold className="card" title={t("run.new")}>
      {() => <Questions />}
    </Fold>
  );
}

function Questions() {
  const { data: { agents } = {}, error: noAgents } = useRead(["agents"], () => api.GET("/agents"));
  const { data: { workflows } = {}, error: noWorkflows } = useRead(["workflows"], () => api.GET("/workflows"));
  const [chosen, setChosen] = useState("");
  const [prompt, setPrompt] = useState("");
  const [inputs, setInputs] = useState<Record<string, unknown>>({});
  const navigate = useNavigate();
  const what = chosen || agents?.[0]?.name || (workflows?.[0] === undefined ? "" : WORKFLOW + workflows[0].name);
  const workflow = workflows?.find(({ name }) => what === WORKFLOW + name);
  const { mutate, error, isPending } = useMutation({
    mutationFn: async () => {
      if (workflow === undefined) return (await data(api.POST("/runs", { body: { agent: what, prompt } }))).id;
      const params = { path: { workflow: workflow.name } };
      return (await data(api.POST("/workflows/{workflow}/runs", { params, body: { inputs } }))).runId;
    },
    onSuccess: (id) => navigate({ to: `/runs/${id}` }),
  });
  if (noAgents || noWorkflows) return <Failure error={noAgents ?? noWorkflows} />;
  if (agents === undefined || workflows === undefined) return <Loading />;
  if (what === "") return <p className="muted">{t("run.new.none")}</p>;
  const about = workflow?.description ?? agents.find(({ name }) => name === what)?.description;
  return (
    <Form className="stack new run-form" submit={mutate}>
      <Choice
        label={t("run.new.what")}
        value={what}
        change={(name) => {
          setChosen(name);
          setInputs({});
        }}
        of={[...agents.map(({ name }) => name), ...workflows.map(({ name }) => WORKFLOW + name)]}
      />
      {about !== undefined && about !== "" && <p className="muted">{about}</p>}
      {workflow === undefined ? (
        <Lines label={t("run.new.prompt")} required rows={3} value={prompt} change={setPrompt} />
      ) : (
        <fieldset>
          <legend>{t("run.new.inputs")}</legend>
          <Suspense fallback={<Loading />}>
            <SchemaForm
              key={workflow.name}
              schema={workflow.inputs}
              value={inputs}
              refused={error instanceof ApiError ? error.violations : undefined}
              onChange={setInputs}
            />
          </Suspense>
        </fieldset>
      )}
      <Send label={t("run.new.start")} disabled={isPending} error={error} />
    </Form>
  );
}
