/** How the parts of a form look. */

import {
  ADDITIONAL_PROPERTY_FLAG,
  type ArrayFieldItemTemplateProps,
  type CyclicSchemaExpandProps,
  type DescriptionFieldProps,
  type FieldErrorProps,
  type FieldTemplateProps,
  type IconButtonProps,
  type TemplatesType,
  type TitleFieldProps,
  type WidgetProps,
  type WrapIfAdditionalTemplateProps,
} from "@rjsf/utils";
import { type KeyboardEvent, useState } from "react";
import { type Key, t } from "../../text";
import { shownExact } from "../exact";
import { Check } from "../fields";
import { isSchema } from "../SchemaTree";

function Field(props: FieldTemplateProps) {
  const { id, label, children, errors, description, hidden, required, displayLabel, schema, formData, onChange, fieldPathId } = props;
  if (hidden) return <div hidden>{children}</div>;
  const isNull = schema.takesNull === true && formData === null;
  const own = displayLabel || isNull || schema.type === "boolean";
  return (
    <Wrap {...props}>
      {own && (
        <label htmlFor={id} className="field-label">
          {label}
          {required && <em> {t("tool.required")}</em>}
        </label>
      )}
      {own && description}
      {!isNull && children}
      {formData === "" && displayLabel && <p className="field-about empty-text">{t("form.empty")}</p>}
      {schema.takesNull === true && (
        <Check on={isNull} change={(on) => onChange(on ? null : undefined, fieldPathId.path)}>
          <span className="visually-hidden">{label}: </span>
          {t("recipe.type.null")}
        </Check>
      )}
      {errors}
    </Wrap>
  );
}

/** An entry of a map has a name that can be changed, and can be removed. */
function Wrap(props: WrapIfAdditionalTemplateProps) {
  const { id, label, children, schema, onKeyRenameBlur, onRemoveProperty, registry } = props;
  if (!(ADDITIONAL_PROPERTY_FLAG in schema)) return <div className="field">{children}</div>;
  const { RemoveButton } = registry.templates.ButtonTemplates;
  return (
    <div className="field entry">
      <label>
        <span className="field-label">{t("tools.sort.name")}</span>
        <input key={label} id={`${id}-key`} defaultValue={label} onBlur={onKeyRenameBlur} />
      </label>
      <div className="entry-value">{children}</div>
      <RemoveButton onClick={onRemoveProperty} registry={registry} />
    </div>
  );
}

function Item({ children, buttonsProps, hasToolbar, registry }: ArrayFieldItemTemplateProps) {
  const { ArrayFieldItemButtonsTemplate: Buttons } = registry.templates;
  return (
    <div className="item">
      <div className="item-value">{children}</div>
      {hasToolbar && (
        <div className="item-buttons">
          <Buttons {...buttonsProps} />
        </div>
      )}
    </div>
  );
}

function Title({ id, title, required }: TitleFieldProps) {
  return (
    <legend id={id} className="field-label">
      {title}
      {required && <em> {t("tool.required")}</em>}
    </legend>
  );
}

function Description({ id, description }: DescriptionFieldProps) {
  if (!description) return null;
  return (
    <p id={id} className="field-about">
      {description}
    </p>
  );
}

function Errors({ errors = [], fieldPathId }: FieldErrorProps) {
  if (errors.length === 0) return null;
  return (
    <ul className="wrong" id={`${fieldPathId.$id}__error`}>
      {errors.map((error, index) => (
        <li key={index}>{error}</li>
      ))}
    </ul>
  );
}

/** A schema that contains itself is shown one step further at a time. */
function Cycle({ name, fieldPathId, onExpand }: CyclicSchemaExpandProps) {
  return (
    <button type="button" className="button add" onClick={() => onExpand(fieldPathId.$id)}>
      + {t("form.add")}: {name}
    </button>
  );
}

function button(label: Key, sign: string) {
  return function SmallButton({ id, disabled, onClick }: IconButtonProps) {
    return (
      <button id={id} type="button" className="button" disabled={disabled} aria-label={t(label)} title={t(label)} onClick={onClick}>
        {sign}
      </button>
    );
  };
}

function Add({ id, disabled, onClick }: IconButtonProps) {
  return (
    <button id={id} type="button" className="button add" disabled={disabled} onClick={onClick}>
      + {t("form.add")}
    </button>
  );
}

type OptionsProps = { id: string; label: string; of: string[]; chosen: number; required: boolean; disabled?: boolean; choose: (index: number) => void };

/** One of several, or none. */
export function Options({ id, label, of, chosen, required, disabled, choose }: OptionsProps) {
  return (
    // One that chooses a form has no label of its own.
    <select id={id} aria-label={label} value={chosen} {...{ required, disabled }} onChange={({ target }) => choose(Number(target.value))}>
      {(chosen < 0 || !required) && <option value={-1}>{t("form.unset")}</option>}
      {of.map((one, index) => (
        <option key={index} value={index}>
          {one}
        </option>
      ))}
    </select>
  );
}

/** Several of a list are checkboxes: a list to choose several from needs a key that few know. */
function Select(props: WidgetProps) {
  const { CheckboxesWidget } = props.registry.widgets;
  if (props.multiple && CheckboxesWidget !== undefined) return <CheckboxesWidget {...props} />;
  const { id, label, value, required = false, disabled, options, onChange } = props;
  const choices = options.enumOptions ?? [];
  return (
    <Options
      of={choices.map((one) => (one.value === null ? t("recipe.type.null") : one.label))}
      chosen={choices.findIndex((one) => one.value === value)}
      choose={(index) => onChange(choices[index]?.value)}
      {...{ id, label, required, disabled }}
    />
  );
}

// The server takes 4 MiB in all, and Base64 has four characters for three bytes.
const MOST_MB = 3;

/** Return the content of a file as a data: address. */
function addressOf(file: File): Promise<string> {
  return new Promise((resolve) => {
    const reader = new FileReader();
    reader.addEventListener("load", () => resolve(String(reader.result)));
    reader.readAsDataURL(file);
  });
}

/** Files whose contents become the value, or its entries: Base64, or the data: addresses that the schema asks for. */
function FileField({ id, value, disabled, multiple = false, schema, registry, onChange }: WidgetProps) {
  const [names] = useState(() => new Map<string, string>());
  const [wrong, setWrong] = useState("");
  const files = [value ?? []].flat() as string[];
  const { RemoveButton } = registry.templates.ButtonTemplates;
  const change = (next: string[]) => onChange(multiple && next.length > 0 ? next : next[0]);
  const read = async (chosen: File[]) => {
    const kept = multiple ? files : [];
    const size = chosen.reduce((sum, one) => sum + one.size, kept.join("").length * 0.75) / 1e6;
    const name = chosen.map((one) => one.name).join(", ");
    setWrong(size > MOST_MB ? t("form.large", { name, size: Math.ceil(size * 10) / 10, most: MOST_MB }) : "");
    if (size > MOST_MB) return;
    const isBase64 = [schema, schema.items].some((one) => isSchema(one) && one.contentEncoding === "base64");
    const contents = (await Promise.all(chosen.map(addressOf))).map((one) => (isBase64 ? one.slice(one.indexOf(",") + 1) : one));
    for (const [index, one] of contents.entries()) names.set(one, chosen[index]?.name ?? "");
    change([...kept, ...contents]);
  };
  return (
    <>
      <input
        id={id}
        type="file"
        {...{ disabled, multiple }}
        onChange={({ target }) => {
          void read([...(target.files ?? [])]);
          // The list below has what is chosen, also that of before.
          target.value = "";
        }}
      />
      {wrong !== "" && <p className="wrong" role="alert">{wrong}</p>}
      {files.map((one, index) => (
        <p key={index} className="beside field-about">
          <span className="row-main">{[names.get(one) ?? [], t("form.file", { n: one.length })].flat().join(" · ")}</span>
          <RemoveButton registry={registry} onClick={() => change(files.toSpliced(index, 1))} />
        </p>
      ))}
    </>
  );
}

function send(event: KeyboardEvent<HTMLTextAreaElement>) {
  if (event.key !== "Enter" || event.shiftKey) return;
  event.preventDefault();
  event.currentTarget.form?.requestSubmit();
}

/** A text of any number of lines. Enter sends the form, as in a field of one line; with Shift it begins a line. */
function Text(props: WidgetProps) {
  const { id, value, required, disabled, schema, registry, onChange } = props;
  const { BaseInputTemplate } = registry.templates;
  const isLine = schema.examples !== undefined && !String(value ?? "").includes("\n");
  if (schema.type !== "string" || isLine) return <BaseInputTemplate {...props} />;
  return (
    <textarea id={id} value={value == null ? "" : shownExact(value)} rows={1} {...{ required, disabled }} onChange={({ target }) => onChange(target.value || undefined)} onKeyDown={send} />
  );
}

/** A date with its time, or a time, exactly as typed: with the offset that it has, or that of this browser. */
function Moment({ id, value, required, disabled, schema, onChange }: WidgetProps) {
  const isTime = schema.format === "time";
  const [, wall, zone] = /^(.*?)(Z|[+-]\d\d:\d\d)?$/i.exec(String(value ?? "")) ?? [];
  const change = (typed: string) => {
    const whole = /\d\d:\d\d:/.test(typed) ? typed : `${typed}:00`;
    onChange(typed === "" ? undefined : whole + (zone ?? offsetOf(isTime ? new Date() : new Date(typed))));
  };
  return (
    <>
      <input id={id} type={isTime ? "time" : "datetime-local"} value={wall ?? ""} {...{ required, disabled }} onChange={({ target }) => change(target.value)} />
      {typeof value === "string" && <p className="field-about">{t("form.sent", { value })}</p>}
    </>
  );
}

function offsetOf(moment: Date): string {
  const minutes = -moment.getTimezoneOffset();
  const [hours, rest] = [Math.trunc(Math.abs(minutes) / 60), Math.abs(minutes) % 60].map((one) => String(one).padStart(2, "0"));
  return `${minutes < 0 ? "-" : "+"}${hours}:${rest}`;
}

export const widgets = {
  SelectWidget: Select,
  // One that is not checked would not show if it is "no", or not set.
  CheckboxWidget: Select,
  TextWidget: Text,
  DateTimeWidget: Moment,
  TimeWidget: Moment,
  FileWidget: FileField,
};

export const templates: Partial<Omit<TemplatesType, "ButtonTemplates">> & {
  ButtonTemplates: Partial<TemplatesType["ButtonTemplates"]>;
} = {
  FieldTemplate: Field,
  WrapIfAdditionalTemplate: Wrap,
  ArrayFieldItemTemplate: Item,
  TitleFieldTemplate: Title,
  DescriptionFieldTemplate: Description,
  FieldErrorTemplate: Errors,
  CyclicSchemaExpandTemplate: Cycle,
  ButtonTemplates: {
    AddButton: Add,
    RemoveButton: button("secrets.remove", "✕"),
    MoveUpButton: button("form.up", "↑"),
    MoveDownButton: button("form.down", "↓"),
  },
};
