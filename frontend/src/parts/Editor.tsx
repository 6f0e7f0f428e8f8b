import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, HighlightStyle, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { Compartment, EditorState, StateEffect, StateField, type Text } from "@codemirror/state";
import { Decoration, type DecorationSet, drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { tags } from "@lezer/highlight";
import { useEffect, useEffectEvent, useRef } from "react";
import { spoken } from "../text";

export type Finding = { line: number; column: number; severity: "error" | "warning"; rule: string; message: string };
type Props = {
  label: string;
  text: string;
  findings: readonly Finding[];
  /** Put the cursor there; a new object does it again. */
  goTo: Finding | null;
  onChange: (text: string) => void;
};

function placeOf(doc: Text, { line, column }: Finding): number {
  const found = doc.line(Math.min(Math.max(line, 1), doc.lines));
  return Math.min(found.from + Math.max(column - 1, 0), found.to);
}

const look = EditorView.theme({
  "&": { border: "1px solid var(--field-line)", borderRadius: "6px", background: "var(--surface)", color: "var(--text)" },
  "&.cm-focused": { outline: "2px solid var(--accent)", outlineOffset: "2px" },
  ".cm-scroller": { minHeight: "22rem", maxHeight: "65vh", font: "0.8125rem/1.5 var(--mono)", borderRadius: "6px" },
  ".cm-gutters": { border: "0", background: "var(--raised)", color: "var(--muted)" },
  ".cm-activeLine": { background: "color-mix(in srgb, var(--accent-soft) 55%, transparent)" },
  ".cm-error": { background: "var(--bad-soft)", textDecoration: "underline wavy var(--bad)" },
  ".cm-warning": { background: "var(--warn-soft)", textDecoration: "underline dotted var(--warn)" },
  ".cm-content": { caretColor: "var(--text)" },
  ".cm-cursor": { borderLeftColor: "var(--text)" },
  "&.cm-focused > .cm-scroller > .cm-selectionLayer .cm-selectionBackground, .cm-selectionBackground": {
    background: "color-mix(in srgb, var(--accent) 30%, transparent)",
  },
});
const colors = HighlightStyle.define([
  { tag: [tags.propertyName, tags.definition(tags.propertyName)], color: "var(--accent)" },
  { tag: tags.string, color: "var(--good)" },
  { tag: [tags.number, tags.bool, tags.null, tags.keyword, tags.atom], color: "var(--warn)" },
  { tag: [tags.comment, tags.meta], color: "var(--muted)" },
]);

/** Marks the lines of findings; `@codemirror/lint` would draw pictures that the page's policy forbids. */
const mark = StateEffect.define<readonly Finding[]>();
const marks = StateField.define<DecorationSet>({
  create: () => Decoration.none,
  update(shown, { changes, effects, newDoc }) {
    const found = effects.find((one) => one.is(mark))?.value as readonly Finding[] | undefined;
    if (found === undefined) return shown.map(changes);
    const lines = found.map((one) =>
      Decoration.line({ class: `cm-${one.severity}`, attributes: { title: spoken(one.rule, one.message) } }).range(
        newDoc.lineAt(placeOf(newDoc, one)).from,
      ),
    );
    return Decoration.set(lines, true);
  },
  provide: (field) => EditorView.decorations.from(field),
});

const languageOf = (text: string) => (text.trimStart().startsWith("{") ? json() : yaml());

/** An editor for YAML and JSON, with findings at their lines. */
export default function Editor({ label, text, findings, goTo, onChange }: Props) {
  const place = useRef<HTMLDivElement>(null);
  const view = useRef<EditorView>(null);
  const language = useRef(new Compartment());
  const changed = useEffectEvent(onChange);
  const first = useRef(text);

  useEffect(() => {
    if (place.current === null) return;
    // There it adopts style sheets; elsewhere it would add style elements, which the page's policy forbids.
    const root = place.current.shadowRoot ?? place.current.attachShadow({ mode: "open" });
    const made = new EditorView({
      parent: root,
      root,
      state: EditorState.create({
        doc: first.current,
        extensions: [
          lineNumbers(),
          marks,
          history(),
          drawSelection(),
          bracketMatching(),
          indentOnInput(),
          highlightActiveLine(),
          look,
          syntaxHighlighting(colors),
          language.current.of(languageOf(first.current)),
          keymap.of([...defaultKeymap, ...historyKeymap]),
          EditorView.lineWrapping,
          EditorView.contentAttributes.of({ "aria-label": label, spellcheck: "false" }),
          EditorView.updateListener.of(({ docChanged, state }) => docChanged && changed(state.doc.toString())),
        ],
      }),
    });
    view.current = made;
    return () => made.destroy();
  }, [label]);

  useEffect(() => {
    const { current } = view;
    if (current === null || current.state.doc.toString() === text) return;
    current.dispatch({
      changes: { from: 0, to: current.state.doc.length, insert: text },
      effects: language.current.reconfigure(languageOf(text)),
    });
  }, [text]);

  useEffect(() => {
    const { current } = view;
    if (current === null) return;
    current.dispatch({ effects: mark.of(findings) });
  }, [findings]);

  useEffect(() => {
    const { current } = view;
    if (current === null || goTo === null) return;
    current.dispatch({ selection: { anchor: placeOf(current.state.doc, goTo) }, scrollIntoView: true });
    current.focus();
  }, [goTo]);

  return <div ref={place} dir="ltr" />;
}
