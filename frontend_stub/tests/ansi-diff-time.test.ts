import { describe, expect, it } from "vitest";
import { cleanOutput, toPieces } from "../src/components/common/ansi";
import { compare, diffOf, parseUnified } from "../src/components/common/diff";
import { formatAgo, formatDuration, formatElapsed, parseTimestamp } from "../src/state/time";

const ESC = "\u001b";

describe("terminal output", () => {
  it("shows the last state of a line that was written over", () => {
    expect(cleanOutput("10%\r50%\r100%\nnext\r\n")).toBe("100%\nnext\n");
  });

  it("keeps colours and drops other control sequences", () => {
    const text = `${ESC}]0;title\u0007${ESC}[2K${ESC}[?25l${ESC}[31mred${ESC}[0m plain\u0007`;
    expect(toPieces(text).map((piece) => [piece.text, piece.classes])).toEqual([
      ["red", "ansi-red"],
      [" plain", ""],
    ]);
  });

  it("knows the 256 colours and true colours", () => {
    const [palette, exact] = toPieces(`${ESC}[38;5;196ma${ESC}[38;2;1;2;3mb`);
    expect(palette?.color).toBe("rgb(255, 0, 0)");
    expect(exact?.color).toBe("rgb(1, 2, 3)");
  });

  it("never takes output for markup", () => {
    expect(toPieces("<b>&amp;</b>")).toEqual([{ text: "<b>&amp;</b>", classes: "", color: "", background: "" }]);
  });

  it("applies backspaces", () => {
    expect(cleanOutput("abc\b\bX")).toBe("aX");
  });
});

const facts = { diff: "", oldContent: null, newContent: null, command: "", oldText: "", newText: "", fileText: "" };

describe("diffs", () => {
  it("number the lines of a unified diff", () => {
    const diff = parseUnified("--- a/x\n+++ b/x\n@@ -3,2 +3,2 @@\n same\n-old\n+new\n");
    expect(diff).toEqual({
      added: 1,
      removed: 1,
      lines: [
        { kind: "same", text: "same", oldNumber: 3, newNumber: 3 },
        { kind: "removed", text: "old", oldNumber: 4, newNumber: null },
        { kind: "added", text: "new", oldNumber: null, newNumber: 4 },
      ],
    });
  });

  it("read a diff without headers by its signs", () => {
    expect(parseUnified("-a\n+b")).toMatchObject({ added: 1, removed: 1 });
  });

  it("are made from two versions when the edit brings none", () => {
    expect(diffOf({ ...facts, oldContent: "a\nb\n", newContent: "a\nc\n" })).toMatchObject({ added: 1, removed: 1 });
  });

  it("show a new file as added lines", () => {
    expect(diffOf({ ...facts, fileText: "one\ntwo\n" })?.lines.map((line) => line.newNumber)).toEqual([1, 2]);
    expect(compare("", "x")).toMatchObject({ added: 1, removed: 0 });
  });

  it("fall back to what was asked for, without line numbers", () => {
    const diff = diffOf({ ...facts, oldText: "a", newText: "b" });
    expect(diff?.lines).toEqual([
      { kind: "removed", text: "a", oldNumber: null, newNumber: null },
      { kind: "added", text: "b", oldNumber: null, newNumber: null },
    ]);
    expect(diffOf(facts)).toBeNull();
  });
});

describe("times", () => {
  it("take a time without a zone as UTC", () => {
    const noon = Date.parse("2026-01-01T12:00:00.123Z");
    expect(parseTimestamp("2026-01-01T12:00:00.123456")).toBe(noon);
    expect(parseTimestamp("2026-01-01T13:00:00.123+01:00")).toBe(noon);
    expect(parseTimestamp("yesterday")).toBeNull();
  });

  it("are worded as short as they stay clear", () => {
    expect([320, 12_400, 125_000, 3_723_000].map(formatDuration)).toEqual(["0.3 s", "12 s", "2:05", "1:02:03"]);
    expect([0, 7_900, 61_000].map(formatElapsed)).toEqual(["0:00", "0:07", "1:01"]);
    const now = Date.parse("2026-01-10T00:00:00Z");
    expect([10_000, 300_000, 7_200_000, 172_800_000].map((ago) => formatAgo(now - ago, now))).toEqual(["now", "5 min", "2 h", "2 d"]);
  });
});
