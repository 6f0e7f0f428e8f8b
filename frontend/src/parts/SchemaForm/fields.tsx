/** The fields of a form that the library has not, or otherwise. */

import { getDefaultRegistry } from "@rjsf/core";
import { type FieldProps, type RJSFSchema, toFieldPathId } from "@rjsf/utils";
import { type ComponentType, useState } from "react";
import { t } from "../../text";
import { fieldText, numberOf, readExact, writeExact } from "../exact";
import { isSchema } from "../SchemaTree";
import { Options } from "./templates";
import { validator } from "./validator";

const { ArrayField } = getDefaultRegistry().fields;

/** A number stays as it is typed: 1.10, or one of 20 digits. */
function NumberField({ formData, onChange, ...props }: FieldProps) {
  const StringField = props.registry.fields.StringField as ComponentType<FieldProps>;
  const change: FieldProps["onChange"] = (typed, ...where) => onChange(typeof typed === "string" ? numberOf(typed) : typed, ...where);
  return <StringField {...props} formData={fieldText(formData)} onChange={change} />;
}

/** A value of any kind, as JSON; none while what is typed is no JSON. */
function Anything({ fieldPathId, name, formData, onChange }: FieldProps) {
  const [typed, setTyped] = useState(() => ({ text: textOf(formData), value: formData as unknown }));
  // An entry of a map that has no value has an empty text.
  const isUnset = typed.value === undefined && formData === "";
  if (textOf(typed.value) !== textOf(formData) && !isUnset) setTyped({ text: textOf(formData), value: formData });
  const change = (text: string) => {
    const value = jsonOf(text);
    setTyped({ text, value });
    onChange(value, fieldPathId.path);
  };
  return (
    <>
      <textarea id={fieldPathId.$id} aria-label={name} rows={1} dir="ltr" spellCheck={false} value={typed.text} onChange={({ target }) => change(target.value)} />
      {typed.value === undefined && <p className={typed.text === "" ? "field-about" : "wrong"}>{t("form.any")}</p>}
    </>
  );
}

const textOf = (value: unknown) => (value === undefined ? "" : writeExact(value, 2));

function jsonOf(text: string): unknown {
  try {
    return readExact(text);
  } catch {
    return undefined;
  }
}

/** A list with a schema for each of its places. */
function Places(props: FieldProps) {
  const { schema, formData, fieldPathId, errorSchema, name, title, registry } = props;
  const { SchemaField } = registry.fields as Record<string, ComponentType<FieldProps>>;
  if (!Array.isArray(schema.items) || SchemaField === undefined) return ArrayField && <ArrayField {...props} />;
  const { TitleFieldTemplate: Title } = registry.templates;
  return (
    <fieldset>
      <Title id={`${fieldPathId.$id}__title`} title={title ?? schema.title ?? name} {...{ schema, registry }} />
      {(schema.items as RJSFSchema[]).map((place, index) => (
        <SchemaField
          {...props}
          key={index}
          schema={place}
          name={place.title ?? String(index + 1)}
          title={undefined}
          required={false}
          formData={(formData as unknown[] | undefined)?.[index]}
          errorSchema={errorSchema?.[index]}
          fieldPathId={toFieldPathId(String(index), registry.globalFormOptions, fieldPathId)}
        />
      ))}
    </fieldset>
  );
}

/** One of several schemas. Another one keeps of the value what it can have. */
function Alternatives(props: FieldProps) {
  const { formData, fieldPathId, name, options, registry, required = false, schema, onChange } = props;
  const { SchemaField } = registry.fields as Record<string, ComponentType<FieldProps>>;
  const { schemaUtils } = registry;
  const all = (options as RJSFSchema[]).map((one) => schemaUtils.retrieveSchema(one, formData));
  const [chosen, setChosen] = useState(() => (formData === undefined && !required ? -1 : schemaUtils.getClosestMatchingOption(formData, all, 0)));
  const choose = (index: number) => {
    const next = all[index];
    setChosen(index);
    // What stands beside the alternatives belongs to all of them.
    const whole = next?.properties === undefined ? next : { ...next, properties: { ...schema.properties, ...next.properties } };
    onChange(whole === undefined ? undefined : kept(formData, whole, schemaUtils.getRootSchema()), fieldPathId.path);
  };
  const one = all[chosen];
  const inherited = schema.required === undefined ? {} : { required: schema.required };
  return (
    <div className="choice">
      <Options
        id={`${fieldPathId.$id}__${schema.oneOf ? "oneof" : "anyof"}_select`}
        label={schema.title ?? name}
        of={all.map(({ title = "" }) => title)}
        chosen={chosen}
        required={required}
        choose={choose}
      />
      {one !== undefined && SchemaField !== undefined && (
        <SchemaField {...props} key={chosen} schema={{ ...inherited, ...one }} />
      )}
    </div>
  );
}

const isObject = (value: unknown): value is Record<string, unknown> => isSchema(value);

/** Return what a schema can have of a value, with its constants. */
function kept(value: unknown, schema: RJSFSchema, root: RJSFSchema): unknown {
  const only = schema.enum?.length === 1 ? schema.enum[0] : undefined;
  if (only !== undefined) return only;
  if (schema.properties === undefined) return value !== undefined && validator.isValid(schema, value, root) ? value : undefined;
  const fit = Object.entries(schema.properties).map(([name, part]) => [name, kept(isObject(value) ? value[name] : undefined, part as RJSFSchema, root)]);
  return Object.fromEntries(fit.filter(([, one]) => one !== undefined));
}

export const fields = { NumberField, FallbackField: Anything, ArrayField: Places, AnyOfField: Alternatives, OneOfField: Alternatives };
