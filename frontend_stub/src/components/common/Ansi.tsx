import { memo, useMemo } from "react";
import { toPieces } from "./ansi";

/** Terminal output with its colours. */
export const Ansi = memo(function Ansi({ text }: { readonly text: string }) {
  const pieces = useMemo(() => toPieces(text), [text]);
  return pieces.map((piece, index) =>
    piece.classes === "" && piece.color === "" && piece.background === "" ? (
      piece.text
    ) : (
      <span
        key={index}
        className={piece.classes}
        style={{ color: piece.color || undefined, backgroundColor: piece.background || undefined }}
      >
        {piece.text}
      </span>
    ),
  );
});
