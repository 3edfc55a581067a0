/** A file as the editor shows it: a line about it, then its lines with their numbers. */
export interface NumberedText {
  readonly numbers: readonly string[];
  readonly lines: readonly string[];
  /** The first and the last number. */
  readonly first: number;
  readonly last: number;
}

const NUMBERED = /^\s*(\d+)\t(.*)$/;

/** Null for what is no such text. */
export function numberedText(content: string): NumberedText | null {
  const all = content.replace(/\n$/, "").split("\n");
  const [head = ""] = all;
  const body = NUMBERED.test(head) ? all : all.slice(1);
  const numbers: string[] = [];
  const lines: string[] = [];
  for (const line of body) {
    const [, number = "", text = line] = NUMBERED.exec(line.replace(/\r$/, "")) ?? [];
    numbers.push(number);
    lines.push(text);
  }
  const known = numbers.filter((number) => number !== "").map(Number);
  const [first] = known;
  return first === undefined ? null : { numbers, lines, first, last: known.at(-1) ?? first };
}

const FOLDER = /^The files and directories in (.+?), up to \d+ levels? deep/;

/** The paths below a folder, as the editor lists them; null for what is no such list. */
export function folderEntries(content: string): readonly string[] | null {
  const [head = "", ...lines] = content.replace(/\n+$/, "").split("\n");
  const folder = FOLDER.exec(head)?.[1]?.replace(/\/$/, "");
  if (folder === undefined) return null;
  return lines.map((line) => (line.startsWith(`${folder}/`) ? line.slice(folder.length + 1) : line)).filter((line) => line !== "");
}
