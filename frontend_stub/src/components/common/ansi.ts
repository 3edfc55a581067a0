/** Terminal output as coloured pieces. Only colours are kept: cursor movements have no meaning in a finished text. */
import Anser from "anser";

export interface Piece {
  readonly text: string;
  readonly classes: string;
  readonly color: string;
  readonly background: string;
}

/* eslint-disable no-control-regex -- control characters are what this is about */
/** Everything that starts with ESC except colours (CSI … m): window titles, cursor moves, character sets. */
const OTHER_ESCAPES =
  /\u001b(?:\][^\u0007\u001b]*(?:\u0007|\u001b\\)?|[PX^_][^\u001b]*(?:\u001b\\)?|\[[0-9;:?<=>!]*[ -/]*[@-ln-~]|[()*+][A-Za-z0-9]|[@-OQ-WYZ\\=>78c])/g;
const COLOURS = /\u001b\[[0-9;:]*m/g;
const CONTROLS = /[\u0000-\u0007\u000b\u000c\u000e-\u001a\u001c-\u001f\u007f]/g;
/* eslint-enable no-control-regex */

/** What stands on a line after carriage returns: a progress bar shows its last state only. */
function lastState(line: string): string {
  const ended = line.endsWith("\r") ? line.slice(0, -1) : line;
  return ended.slice(ended.lastIndexOf("\r") + 1);
}

function applyBackspaces(text: string): string {
  if (!text.includes("\b")) return text;
  let result = "";
  for (const character of text) result = character === "\b" ? result.slice(0, -1) : result + character;
  return result;
}

export function cleanOutput(text: string): string {
  const plain = text.replace(OTHER_ESCAPES, "");
  const lines = plain.includes("\r") ? plain.split("\n").map(lastState).join("\n") : plain;
  return applyBackspaces(lines).replace(CONTROLS, "");
}

/** Output without its colours, to be copied. */
export function plainOutput(text: string): string {
  return cleanOutput(text).replace(COLOURS, "").trimEnd();
}

export function toPieces(text: string): readonly Piece[] {
  const clean = cleanOutput(text);
  if (!clean.includes("\u001b")) return [{ text: clean, classes: "", color: "", background: "" }];
  return Anser.ansiToJson(clean, { use_classes: true, remove_empty: true, json: true }).map((entry) => ({
    text: entry.content,
    classes: [
      colorClass(entry.fg),
      colorClass(entry.bg) && `${colorClass(entry.bg)}-bg`,
      ...entry.decorations.map((decoration) => `ansi-${decoration}`),
    ]
      .filter((name) => name !== "")
      .join(" "),
    color: trueColor(entry.fg, entry.fg_truecolor),
    background: trueColor(entry.bg, entry.bg_truecolor),
  }));
}

function colorClass(name: string | null): string {
  return name === null || name === "" || name === "ansi-truecolor" || name.startsWith("ansi-palette") ? "" : name;
}

function trueColor(name: string | null, rgb: string | null): string {
  if (name === "ansi-truecolor" && rgb !== null) return `rgb(${rgb})`;
  return name?.startsWith("ansi-palette-") === true ? paletteColor(Number(name.slice("ansi-palette-".length))) : "";
}

/** A colour of the 256-colour palette: a 6 × 6 × 6 cube from 16 on, then greys. */
function paletteColor(index: number): string {
  if (index >= 232) {
    const grey = 8 + (index - 232) * 10;
    return `rgb(${grey}, ${grey}, ${grey})`;
  }
  const level = (value: number) => (value === 0 ? 0 : 55 + value * 40);
  const cube = index - 16;
  return `rgb(${level(Math.floor(cube / 36))}, ${level(Math.floor(cube / 6) % 6)}, ${level(cube % 6)})`;
}
