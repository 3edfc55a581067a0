/** Changes of a file as numbered lines, from whatever an edit tells about itself. */
import { parsePatch, structuredPatch } from "diff";
import type { StructuredPatchHunk } from "diff";

export interface DiffLine {
  /** `file` names the file that the lines behind it are of, where there are several. */
  readonly kind: "added" | "removed" | "same" | "gap" | "file";
  readonly text: string;
  readonly oldNumber: number | null;
  readonly newNumber: number | null;
}

export interface FileDiff {
  readonly lines: readonly DiffLine[];
  readonly added: number;
  readonly removed: number;
}

const CONTEXT_LINES = 3;
/** Comparing very long texts takes too long for a page; they are shown as they are. */
const COMPARE_LIMIT = 400_000;

function summarize(lines: readonly DiffLine[]): FileDiff {
  const count = (kind: DiffLine["kind"]) => lines.filter((line) => line.kind === kind).length;
  return { lines, added: count("added"), removed: count("removed") };
}

function hunkLines(hunk: StructuredPatchHunk): DiffLine[] {
  let oldNumber = hunk.oldStart;
  let newNumber = hunk.newStart;
  const lines: DiffLine[] = [];
  for (const line of hunk.lines) {
    const text = line.slice(1);
    if (line.startsWith("+")) lines.push({ kind: "added", text, oldNumber: null, newNumber: newNumber++ });
    else if (line.startsWith("-")) lines.push({ kind: "removed", text, oldNumber: oldNumber++, newNumber: null });
    else if (!line.startsWith("\\")) lines.push({ kind: "same", text, oldNumber: oldNumber++, newNumber: newNumber++ });
  }
  return lines;
}

function fromHunks(hunks: readonly StructuredPatchHunk[]): FileDiff {
  const lines: DiffLine[] = [];
  for (const [index, hunk] of hunks.entries()) {
    if (index > 0) lines.push({ kind: "gap", text: "", oldNumber: null, newNumber: null });
    lines.push(...hunkLines(hunk));
  }
  return summarize(lines);
}

/** A diff without hunk headers: every line by its first character. */
function fromBareLines(diff: string): FileDiff {
  const lines = diff
    .split("\n")
    .filter((line) => !/^(?:---|\+\+\+) /.test(line))
    .map((line): DiffLine => {
      const kind = line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "same";
      return { kind, text: /^[+\- ]/.test(line) ? line.slice(1) : line, oldNumber: null, newNumber: null };
    });
  return summarize(lines);
}

function headOf(before = "", after = ""): DiffLine {
  const path = after === "" || after === "/dev/null" ? before : after;
  return { kind: "file", text: path.replace(/^[ab]\//, ""), oldNumber: null, newNumber: null };
}

/** Reads a unified diff; null when it holds no change. */
export function parseUnified(diff: string): FileDiff | null {
  if (diff.trim() === "") return null;
  let files: FileDiff[] = [];
  try {
    const patches = parsePatch(diff).filter((patch) => patch.hunks.length > 0);
    files = patches.map((patch) => {
      const changes = fromHunks(patch.hunks);
      return patches.length === 1 ? changes : { ...changes, lines: [headOf(patch.oldFileName, patch.newFileName), ...changes.lines] };
    });
  } catch {
    // Not a strict unified diff; its lines still say what was added and removed.
  }
  const result = files.length > 0 ? summarize(files.flatMap((file) => file.lines)) : fromBareLines(diff);
  return result.added + result.removed > 0 ? result : null;
}

function newFile(text: string): FileDiff {
  const body = text.endsWith("\n") ? text.slice(0, -1) : text;
  if (body === "") return { lines: [], added: 0, removed: 0 };
  const lines = body
    .split("\n")
    .map((line, index): DiffLine => ({ kind: "added", text: line, oldNumber: null, newNumber: index + 1 }));
  return { lines, added: lines.length, removed: 0 };
}

/** Compares two versions of a file. */
export function compare(before: string, after: string): FileDiff | null {
  if (before === after) return null;
  if (before === "" || before.length + after.length > COMPARE_LIMIT) return newFile(after);
  return fromHunks(structuredPatch("", "", before, after, "", "", { context: CONTEXT_LINES }).hunks);
}

export interface EditFacts {
  readonly diff: string;
  readonly oldContent: string | null;
  readonly newContent: string | null;
  readonly command: string;
  readonly oldText: string;
  readonly newText: string;
  readonly fileText: string;
}

/** The best account of an edit: its own diff, else the two versions, else what was asked for. */
export function diffOf(facts: EditFacts): FileDiff | null {
  const told = parseUnified(facts.diff);
  if (told !== null) return told;
  if (facts.newContent !== null) return compare(facts.oldContent ?? "", facts.newContent);
  if (facts.fileText !== "") return newFile(facts.fileText);
  if (facts.oldText === "" && facts.newText === "") return null;
  const lines = (text: string, kind: "added" | "removed"): DiffLine[] =>
    text === "" ? [] : text.split("\n").map((line) => ({ kind, text: line, oldNumber: null, newNumber: null }));
  if (facts.oldText === "") return summarize(lines(facts.newText, "added"));
  const compared = compare(`${facts.oldText}\n`, `${facts.newText}\n`);
  if (compared === null) return null;
  // The lines' places in the file are not known, so they have no numbers.
  return summarize(compared.lines.map((line) => ({ ...line, oldNumber: null, newNumber: null })));
}
