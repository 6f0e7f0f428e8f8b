import { useMutation } from "@tanstack/react-query";
import { useNavigate } from "@tanstack/react-router";
import { useState } from "react";
import { api, data, type Schemas } from "../../api/client";
import { Choice, Form, Lines, Send } from "../../parts";
import { t } from "../../text";

/** Begins another run that continues after a step of this one. */
export function Fork({ run }: { run: Schemas["Timeline"] }) {
  const steps = run.iterations.filter(({ live }) => live).map(({ number }) => number);
  const [after, setAfter] = useState(steps.at(-1) ?? 0);
  const [prompt, setPrompt] = useState("");
  const navigate = useNavigate();
  const { mutate, error, isPending } = useMutation({
    mutationFn: () => {
      const body = { iteration: after, prompt: prompt === "" ? null : prompt };
      return data(api.POST("/runs/{runId}/fork", { params: { path: { runId: run.id } }, body }));
    },
    onSuccess: ({ id }) => navigate({ to: `/runs/${id}` }),
  });
  return (
    <details>
      <summary className="button">{t("run.fork")}</summary>
      <Form className="stack new run-form" submit={mutate}>
        <Choice label={t("run.fork.after")} value={after} change={setAfter} of={steps} />
        <Lines label={t("run.fork.prompt")} rows={2} value={prompt} change={setPrompt} />
        <Send label={t("run.fork.start")} disabled={isPending} error={error} />
      </Form>
    </details>
  );
}
