import Form from "@rjsf/core";
import { englishStringTranslator, TranslatableString, type UiSchema } from "@rjsf/utils";
import { useMemo } from "react";
import { type Key, t } from "../../text";
import "./form.css";
import { type Checked, useProblems } from "./checked";
import { fields } from "./fields";
import { formSchema } from "./schema";
import { templates, widgets } from "./templates";
import { errorsOf, validator } from "./validator";

type Props = Checked & { onChange: (value: Record<string, unknown>) => void };

const UI: UiSchema = { "ui:submitButtonOptions": { norender: true }, "ui:title": " " };
// A new entry of a map is empty; the library writes "New Value" into it, also where a number is wanted.
const WORDS: Record<string, Key | ""> = { [TranslatableString.NewStringDefault]: "", [TranslatableString.YesLabel]: "form.yes", [TranslatableString.NoLabel]: "form.no" };

/** A form for one JSON object. What is not set is not sent. Only of what is required a constant is filled in,
 * an empty object, and of several forms the first. */
export default function SchemaForm({ onChange, ...checked }: Props) {
  const { schema, value } = checked;
  const shown = useMemo(() => formSchema(schema), [schema]);
  const problems = useProblems(checked);
  return (
    <Form
      tagName="div"
      idPrefix="args"
      schema={shown}
      uiSchema={UI}
      formData={value}
      validator={validator}
      templates={templates}
      fields={fields}
      widgets={widgets}
      extraErrors={errorsOf(problems)}
      translateString={(text, values) => {
        const key = WORDS[text];
        return key === undefined ? englishStringTranslator(text, values) : key && t(key);
      }}
      showErrorList={false}
      noValidate
      noHtml5Validate
      experimental_defaultFormStateBehavior={{ emptyObjectFields: "populateRequiredDefaults", arrayMinItems: { populate: "never" } }}
      onChange={({ formData }) => {
        if (JSON.stringify(formData) !== JSON.stringify(value)) onChange((formData ?? {}) as Record<string, unknown>);
      }}
    />
  );
}
