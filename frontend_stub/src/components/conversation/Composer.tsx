/** The box in which the user writes. Enter sends, Shift+Enter begins a new line. */
import { useEffect, useLayoutEffect, useRef, useState } from "react";
import type { ReactNode } from "react";
import { hasFinePointer } from "../../app/hooks";
import { tabShelf } from "../../net/storage";
import { SendIcon } from "../common/icons";

interface ComposerProps {
  /** Name under which the unsent text is kept for this tab. */
  readonly draftKey: string;
  readonly placeholder: string;
  readonly label: string;
  readonly disabled: boolean;
  /** Why sending is not possible now; empty when it is. */
  readonly hint?: string;
  readonly busy?: boolean;
  readonly onSend: (text: string) => void;
  /** Stands in the row of the send button. */
  readonly children?: ReactNode;
}

function readDraft(key: string): string {
  return tabShelf.read(key) ?? "";
}

function keepDraft(key: string, text: string): void {
  if (text === "") tabShelf.remove(key);
  else tabShelf.write(key, text);
}

export function Composer(props: ComposerProps) {
  const { draftKey, placeholder, label, disabled, hint = "", busy = false, onSend, children } = props;
  const [text, setText] = useState(() => readDraft(draftKey));
  const field = useRef<HTMLTextAreaElement>(null);

  useLayoutEffect(() => {
    const element = field.current;
    if (element === null) return;
    const style: object = element.style;
    // Where the browser does so itself, it makes room for a long placeholder too.
    if ("fieldSizing" in style) return;
    element.style.height = "auto";
    element.style.height = `${element.scrollHeight}px`;
  }, [text]);

  useEffect(() => {
    if (hasFinePointer()) field.current?.focus();
  }, []);

  const change = (next: string) => {
    setText(next);
    keepDraft(draftKey, next);
  };

  const canSend = !disabled && !busy && text.trim() !== "";
  const send = () => {
    if (!canSend) return;
    onSend(text.trim());
    change("");
  };

  return (
    <form
      className="composer"
      onSubmit={(event) => {
        event.preventDefault();
        send();
      }}
    >
      <textarea
        ref={field}
        className="composer-field"
        rows={1}
        readOnly={busy}
        dir="auto"
        value={text}
        placeholder={placeholder}
        aria-label={label}
        data-testid="composer-input"
        enterKeyHint="send"
        onChange={(event) => {
          change(event.target.value);
        }}
        onKeyDown={(event) => {
          // Enter also ends the composing of a character; that is not for us.
          if (event.key !== "Enter" || event.shiftKey || event.nativeEvent.isComposing) return;
          event.preventDefault();
          if (!event.ctrlKey && !event.metaKey) send();
        }}
      />
      <div className="composer-row">
        <div className="composer-left">{children}</div>
        <button
          type="submit"
          className="send-button"
          disabled={!canSend}
          aria-label="Send"
          title={hint === "" ? "Send (Enter)" : hint}
          data-testid="send-button"
        >
          {busy ? <span className="spinner" aria-hidden="true" /> : <SendIcon />}
        </button>
      </div>
    </form>
  );
}
