import { useEffect, useState } from "react";
import { CheckIcon, CopyIcon } from "./icons";

const SHOWN_MILLISECONDS = 1_500;

interface CopyButtonProps {
  /** The text, or how to make it: asked only when the button is pressed. */
  readonly text: string | (() => string);
  readonly label?: string;
}

/** Copies a text. Absent where the browser allows no copying (pages served without TLS from another host). */
export function CopyButton({ text, label = "Copy" }: CopyButtonProps) {
  const [copied, setCopied] = useState(false);
  useEffect(() => {
    if (!copied) return;
    const timer = window.setTimeout(() => {
      setCopied(false);
    }, SHOWN_MILLISECONDS);
    return () => {
      window.clearTimeout(timer);
    };
  }, [copied]);
  if (!window.isSecureContext) return null;
  return (
    <button
      type="button"
      className="copy-button"
      aria-label={copied ? "Copied" : label}
      title={copied ? "Copied" : label}
      onClick={() => {
        navigator.clipboard.writeText(typeof text === "string" ? text : text()).then(
          () => {
            setCopied(true);
          },
          () => undefined, // The browser asked the user, who said no.
        );
      }}
    >
      {copied ? <CheckIcon size={15} /> : <CopyIcon size={15} />}
    </button>
  );
}
