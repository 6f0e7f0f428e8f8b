/** How the parts of a form look. */

import {
  ADDITIONAL_PROPERTY_FLAG,
  type ArrayFieldItemTemplateProps,
  type CyclicSchemaExpandProps,
  type DescriptionFieldProps,
  type FieldErrorProps,
  type FieldProps,
  type FieldTemplateProps,
  type IconButtonProps,
  type MultiSchemaFieldTemplateProps,
  type TemplatesType,
  type TitleFieldProps,
  type WidgetProps,
  type WrapIfAdditionalTemplateProps,
} from "@rjsf/utils";
import type { ComponentType } from "react";
import { type Key, t } from "../../text";
import { fieldText, numberOf } from "../exact";

function Field(props: FieldTemplateProps) {
  const { id, label, children, errors, description, hidden, required, displayLabel, schema } = props;
  if (hidden) return <div hidden>{children}</div>;
  const own = displayLabel && schema.type !== "boolean";
  return (
    <Wrap {...props}>
      {own && (
        <label htmlFor={id} className="field-label">
          {label}
          {required && <em>{t("tool.required")}</em>}
        </label>
      )}
      {own && description}
      {children}
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
      {required && <em>{t("tool.required")}</em>}
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

function Choice({ selector, optionSchemaField }: MultiSchemaFieldTemplateProps) {
  return (
    <div className="choice">
      {selector}
      {optionSchemaField}
    </div>
  );
}

function Unsupported() {
  return <p className="muted">{t("form.unsupported")}</p>;
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

/** Several of a list are checkboxes: a list to choose several from needs a key that few know. */
function Select(props: WidgetProps) {
  const { CheckboxesWidget } = props.registry.widgets;
  if (props.multiple && CheckboxesWidget !== undefined) return <CheckboxesWidget {...props} />;
  const { id, value, required, disabled, options, onChange } = props;
  const choices = options.enumOptions ?? [];
  const chosen = choices.findIndex((one) => one.value === value);
  return (
    <select
      id={id}
      // One that chooses a form has no label of its own.
      aria-label={props.label}
      value={chosen < 0 ? "" : String(chosen)}
      required={required}
      disabled={disabled}
      onChange={(event) => onChange(choices[Number(event.target.value)]?.value)}
    >
      {(chosen < 0 || !required) && <option value="">{t("form.unset")}</option>}
      {choices.map(({ label, value: one }, index) => (
        <option key={index} value={index}>
          {one === null ? "null" : label}
        </option>
      ))}
    </select>
  );
}

/** A file whose content becomes the value: Base64, or the data: address that its schema asks for. */
function FileField({ id, value, required, disabled, schema, onChange }: WidgetProps) {
  const read = (file: File | undefined) => {
    if (file === undefined) return;
    const reader = new FileReader();
    reader.addEventListener("load", () => {
      const address = String(reader.result);
      onChange(schema.contentEncoding === "base64" ? address.slice(address.indexOf(",") + 1) : address);
    });
    reader.readAsDataURL(file);
  };
  return (
    <>
      <input id={id} type="file" required={required && !value} disabled={disabled} onChange={({ target }) => read(target.files?.[0])} />
      {typeof value === "string" && <p className="field-about">{t("form.file", { n: value.length })}</p>}
    </>
  );
}

/** A number stays as it is typed: 1.10, or one of 20 digits. */
function NumberField({ formData, onChange, ...props }: FieldProps) {
  const StringField = props.registry.fields.StringField as ComponentType<FieldProps>;
  const change: FieldProps["onChange"] = (typed, ...where) => onChange(typeof typed === "string" ? numberOf(typed) : typed, ...where);
  return <StringField {...props} formData={fieldText(formData)} onChange={change} />;
}

export const fields = { NumberField };
export const widgets = { SelectWidget: Select, FileWidget: FileField };

export const templates: Partial<Omit<TemplatesType, "ButtonTemplates">> & {
  ButtonTemplates: Partial<TemplatesType["ButtonTemplates"]>;
} = {
  FieldTemplate: Field,
  WrapIfAdditionalTemplate: Wrap,
  ArrayFieldItemTemplate: Item,
  TitleFieldTemplate: Title,
  DescriptionFieldTemplate: Description,
  FieldErrorTemplate: Errors,
  MultiSchemaFieldTemplate: Choice,
  UnsupportedFieldTemplate: Unsupported,
  CyclicSchemaExpandTemplate: Cycle,
  ButtonTemplates: {
    AddButton: Add,
    RemoveButton: button("secrets.remove", "✕"),
    MoveUpButton: button("form.up", "↑"),
    MoveDownButton: button("form.down", "↓"),
  },
};
