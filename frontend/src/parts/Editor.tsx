import { defaultKeymap, history, historyKeymap } from "@codemirror/commands";
import { json } from "@codemirror/lang-json";
import { yaml } from "@codemirror/lang-yaml";
import { bracketMatching, indentOnInput, syntaxHighlighting } from "@codemirror/language";
import { type Diagnostic, lintGutter, setDiagnostics } from "@codemirror/lint";
import { Compartment, EditorState, type Text } from "@codemirror/state";
import { drawSelection, EditorView, highlightActiveLine, keymap, lineNumbers } from "@codemirror/view";
import { classHighlighter } from "@lezer/highlight";
import { useEffect, useEffectEvent, useRef } from "react";
import "./editor.css";

export type Finding = { line: number; column: number; severity: "error" | "warning"; message: string };
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
    const made = new EditorView({
      parent: place.current,
      state: EditorState.create({
        doc: first.current,
        extensions: [
          lineNumbers(),
          lintGutter(),
          history(),
          drawSelection(),
          bracketMatching(),
          indentOnInput(),
          highlightActiveLine(),
          syntaxHighlighting(classHighlighter),
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
    const { doc } = current.state;
    const marks: Diagnostic[] = findings.map((one) => {
      const from = placeOf(doc, one);
      const end = doc.lineAt(from).to;
      return { from, to: Math.max(from, end), severity: one.severity, message: one.message };
    });
    current.dispatch(setDiagnostics(current.state, marks));
  }, [findings]);

  useEffect(() => {
    const { current } = view;
    if (current === null || goTo === null) return;
    current.dispatch({ selection: { anchor: placeOf(current.state.doc, goTo) }, scrollIntoView: true });
    current.focus();
  }, [goTo]);

  return <div ref={place} className="editor" dir="ltr" />;
}
