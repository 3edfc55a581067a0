import { Fragment, memo, useMemo } from "react";
import { toPieces } from "./ansi";
import { madeVisible } from "./Visible";

/** Terminal output with its colours. */
export const Ansi = memo(function Ansi({ text }: { readonly text: string }) {
  const pieces = useMemo(() => toPieces(text), [text]);
  return pieces.map((piece, index) =>
    piece.classes === "" && piece.color === "" && piece.background === "" ? (
      <Fragment key={index}>{madeVisible(piece.text)}</Fragment>
    ) : (
      <span
        key={index}
        className={piece.classes}
        style={{ color: piece.color || undefined, backgroundColor: piece.background || undefined }}
      >
        {madeVisible(piece.text)}
      </span>
    ),
  );
});
