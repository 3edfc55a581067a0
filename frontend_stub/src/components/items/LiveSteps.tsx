/** What sub-agents do at the moment: a line for each of their steps, the last ones in sight. */
import { useEffect, useRef } from "react";
import { Ansi } from "../common/Ansi";

/** Only the last steps are drawn. */
const CHARACTERS = 4_000;

export function LiveSteps({ text }: { readonly text: string }) {
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  return (
    <pre ref={box} className="file-text wrap sub-steps" data-testid="live-output">
      <Ansi text={text.slice(-CHARACTERS)} />
    </pre>
  );
}
