import { expect, test } from "vitest";
import { plain, readObject } from "../src/parts/json";
import { typeOf } from "../src/parts/SchemaTree";
import { readAnswer, readExact, shownExact, writeExact } from "../src/parts/exact";
import { literal } from "../src/pages/tools/copies";

test("the text of an object is read, and the place of an error named", () => {
  expect(readObject('{"a": 1}')).toEqual({ value: { a: 1 } });
  expect(readObject("[1]")).toEqual({ wrong: "This must be a JSON object" });
  expect(readObject('{\n  "a": oops\n}')).toEqual({ wrong: "Line 2, column 8: o does not fit here" });
  expect(readObject('{"a": 1,\n')).toEqual({ wrong: "The text ends before its object does" });
});

test("hidden characters are written out, and others stay", () => {
  expect(plain("so\u00adft\u{e0041}")).toBe("so\\u00adft\\udb40\\udc41");
  expect(plain("a\u202eb\u001b[31m\tc\n😀ü")).toBe("a\\u202eb\\u001b[31m\tc\n😀ü");
});

test("numbers stay as they are written, whatever texts stand beside them", () => {
  const text = '{"n":[1.10,12345678901234567890,1E3,7],"s":["\\u0000","\\u00001.10","1.10"]}';
  expect(writeExact(readExact(text))).toBe(text);
  expect(literal(readExact(text))).toContain("[1.10, 12345678901234567890, 1E3, 7]");
  expect(["1.10", '"a\\n"', "{}"].map((one) => shownExact(readExact(one)))).toEqual(["1.10", "a\n", "{}"]);
});

test("an answer has numbers of the page, and those of tools as they are written", () => {
  const text = '{"ms":1.0,"texts":["\\u00001.10"],"lines":[{"activeS":2.50,"fields":{"params":{"n":1.10},"ms":3.0}}]}';
  const answer = readAnswer(text) as { lines: { fields: unknown }[] };
  expect(answer).toMatchObject({ ms: 1, texts: ["\u00001.10"], lines: [{ activeS: 2.5 }] });
  expect(writeExact(answer.lines[0]?.fields)).toBe('{"params":{"n":1.10},"ms":3.0}');
});

test("a value is written as Python writes it", () => {
  expect(literal({ a: [null, true, false, 1.5, "x\ny"] })).toBe('{"a": [None, True, False, 1.5, "x\\ny"]}');
});

test("a type is written so that it is read in one way", () => {
  const fields = { type: "array", items: { enum: ["a", "b"] } };
  expect(typeOf(fields, {})).toBe('("a" | "b")[]');
  expect(typeOf({ type: "array", items: { type: "string" } }, {})).toBe("string[]");
});
