/** What was said: by the user, by the agent, and the agent's closing words. */
import type { ActionEvent } from "../../protocol/events";
import { stringField, stringListField } from "../../protocol/fields";
import type { ReactNode } from "react";
import { useContext } from "react";
import { CopyButton } from "../common/CopyButton";
import { useScopedFold } from "../common/folds";
import { CheckIcon, MoreIcon } from "../common/icons";
import { Markdown } from "../common/Markdown";
import { Menu } from "../common/Menu";
import { Picture } from "../common/Picture";
import { Unfold } from "../common/Unfold";
import { Visible } from "../common/Visible";
import { GoingBackContext } from "../conversation/goingBack";
import { Step } from "./Step";

/** What is longer is folded to its beginning. */
const SHOWN_LINES = 20;
const SHOWN_CHARACTERS = 2_400;

function UserText({ text }: { readonly text: string }) {
  const [open, setOpen] = useScopedFold("text");
  const lines = text.split("\n");
  const long = lines.length > SHOWN_LINES + 5 || text.length > SHOWN_CHARACTERS + 600;
  const shown = long && !open ? `${lines.slice(0, SHOWN_LINES).join("\n").slice(0, SHOWN_CHARACTERS)} …` : text;
  return (
    <>
      <div className="user-text" dir="auto">
        {shown}
      </div>
      {long && <Unfold open={open} onToggle={setOpen} more="Show all of the message" less="Show its beginning only" />}
    </>
  );
}

export function UserBubble({
  text,
  images = [],
  files = [],
  waiting = "",
  tools = null,
}: {
  readonly text: string;
  readonly images?: readonly string[];
  readonly files?: readonly string[];
  readonly waiting?: string;
  /** What can be done with it, beside it. */
  readonly tools?: ReactNode;
}) {
  return (
    <div className="user-row" data-testid={waiting === "" ? "user-message" : "pending-message"}>
      {tools}
      {waiting === "" && <CopyButton text={text} label="Copy message" />}
      <div className={waiting === "" ? "user-bubble" : "user-bubble waiting"}>
        <span className="visually-hidden">You said: </span>
        <UserText text={text} />
        {images.length > 0 && (
          <div className="user-images">
            {images.map((image, index) => (
              <Picture key={index} place={String(index)} src={image} alt={`Attachment ${index + 1}`} />
            ))}
          </div>
        )}
        {files.map((file) => (
          <code key={file} className="user-file">
            <Visible text={file} />
          </code>
        ))}
        {waiting !== "" && <span className="user-waiting">{waiting}</span>}
      </div>
    </div>
  );
}

export function UserMessage({ event }: { readonly event: ActionEvent }) {
  const going = useContext(GoingBackContext);
  const before = event.id - 1;
  const entries =
    going === null || event.id < 0
      ? []
      : [
          { label: "Go back to before this message", testId: "go-back", onSelect: () => { going.goBack(before < 0 ? null : before); } },
          ...(before < 0 ? [] : [{ label: "Begin another conversation here", testId: "fork", onSelect: () => { going.fork(before); } }]),
        ];
  return (
    <UserBubble
      tools={
        entries.length > 0 && (
          <Menu label="More about this message" className="copy-button" testId="message-menu" entries={entries}>
            <MoreIcon size={15} />
          </Menu>
        )
      }
      text={stringField(event.args, "content") || event.message}
      images={stringListField(event.args, "image_urls").filter((url) => url.startsWith("data:image/"))}
      files={stringListField(event.args, "file_urls")}
    />
  );
}

export function AgentMessage({ event }: { readonly event: ActionEvent }) {
  const text = event.message || stringField(event.args, "content");
  if (text.trim() === "") return null;
  return (
    <div className="step speech" data-testid="agent-message">
      <div className="step-rail" />
      <div className="step-content">
        <span className="visually-hidden">The agent said: </span>
        <Markdown text={text} />
        <CopyButton text={text} label="Copy message" />
      </div>
    </div>
  );
}

export function FinishCard({ event }: { readonly event: ActionEvent }) {
  const text = stringField(event.args, "final_thought") || event.message;
  return (
    <Step icon={<CheckIcon size={14} />} tone="ok" testId="finish-card" action={event}>
      <div className="finish">
        <div className="waterline" aria-hidden="true" />
        <div className="finish-body">
          <h2 className="finish-title">Finished</h2>
          <Markdown text={text} />
          <CopyButton text={text} label="Copy message" />
        </div>
      </div>
    </Step>
  );
}
