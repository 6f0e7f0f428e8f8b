import { expect, test } from "vitest";
import { plain, readObject } from "../src/parts/json";
import { literal } from "../src/pages/tools/copies";

test("the text of an object is read, and the place of an error named", () => {
  expect(readObject('{"a": 1}')).toEqual({ value: { a: 1 } });
  expect(readObject("[1]")).toEqual({ notAnObject: true });
  expect(readObject('{\n  "a": oops\n}')).toMatchObject({ line: 2, column: 8 });
  expect(readObject('{"a": 1,\n')).toMatchObject({ line: 2 });
});

test("hidden characters are written out, and others stay", () => {
  expect(plain("a\u202eb\u001b[31m\tc\n😀ü")).toBe("a\\u202eb\\u001b[31m\tc\n😀ü");
});

test("a value is written as Python writes it", () => {
  expect(literal({ a: [null, true, false, 1.5, "x\ny"] })).toBe('{"a": [None, True, False, 1.5, "x\\ny"]}');
});
