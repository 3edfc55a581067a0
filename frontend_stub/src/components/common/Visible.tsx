/**
 * Text that somebody decides on, or goes by: nothing in it may hide.
 *
 * Characters that are not drawn, or that change the order in which others are, stand there by their number. Those that
 * join letters stay as they are: whole scripts need them.
 */
import type { ReactNode } from "react";

/* eslint-disable no-control-regex -- these characters are what this is about */
const HIDDEN =
  /\r(?!\n|$)|[\u0000-\u0008\u000b\u000c\u000e-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]/gu;
/* eslint-enable no-control-regex */

function nameOf(character: string): string {
  return `U+${(character.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0")}`;
}

/** The same text where nothing hides in it; else its pieces, with the hidden characters as marks. */
export function madeVisible(text: string): ReactNode {
  const pieces: ReactNode[] = [];
  let end = 0;
  for (const found of text.matchAll(HIDDEN)) {
    const name = nameOf(found[0]);
    pieces.push(
      text.slice(end, found.index),
      <span key={found.index} className="hidden-character" title={`Hidden character ${name}`}>
        {name}
      </span>,
    );
    end = found.index + found[0].length;
  }
  return pieces.length === 0 ? text : [...pieces, text.slice(end)];
}

export function Visible({ text }: { readonly text: string }) {
  return madeVisible(text);
}
