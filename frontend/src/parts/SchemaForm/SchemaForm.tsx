import Form from "@rjsf/core";
import { englishStringTranslator, type RJSFSchema, TranslatableString, type UiSchema } from "@rjsf/utils";
import { useMemo, useState } from "react";
import "./form.css";
import { writeExact } from "../exact";
import { withoutDefaults } from "./schema";
import { fields, templates, widgets } from "./templates";
import { errorsOf, validator } from "./validator";

type Props = {
  schema: Record<string, unknown>;
  /** As `readExact` has read it. */
  value: Record<string, unknown>;
  /** What the server found wrong with a value that it refused. */
  refused: { path: string; message: string }[];
  onChange: (value: Record<string, unknown>) => void;
};

const UI: UiSchema = { "ui:submitButtonOptions": { norender: true }, "ui:title": " " };

/** A form for one JSON object. What is not set is not sent. Only of what is required a constant is filled in,
 * an empty object, and of several forms the first. */
export default function SchemaForm({ schema, value, refused, onChange }: Props) {
  const [touched, setTouched] = useState(false);
  // Its name and description stand above the form already.
  const shown = useMemo(() => {
    const { title: _, description: __, ...rest } = withoutDefaults(schema);
    return JSON.parse(writeExact(rest)) as RJSFSchema;
  }, [schema]);
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
      extraErrors={errorsOf(refused)}
      liveValidate={touched ? "onChange" : undefined}
      // A new entry of a map is empty; the library writes "New Value" into it, also where a number is wanted.
      translateString={(text, values) => (text === TranslatableString.NewStringDefault ? "" : englishStringTranslator(text, values))}
      showErrorList={false}
      noHtml5Validate
      experimental_defaultFormStateBehavior={{ emptyObjectFields: "populateRequiredDefaults", arrayMinItems: { populate: "never" } }}
      onChange={({ formData }) => {
        if (JSON.stringify(formData) === JSON.stringify(value)) return;
        setTouched(true);
        onChange((formData ?? {}) as Record<string, unknown>);
      }}
    />
  );
}
