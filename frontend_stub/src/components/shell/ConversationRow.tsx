/** One conversation in the list: open it, rename it in place, delete it. */
import { useEffect, useRef, useState } from "react";
import { Link } from "wouter";
import { useNow } from "../../app/hooks";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";
import type { ConversationInfo, ConversationStatus } from "../../protocol/rest";
import { formatAgo, parseTimestamp } from "../../state/time";
import { MoreIcon } from "../common/icons";
import { isolated } from "../../app/isolated";
import { Menu } from "../common/Menu";

const STATUS_WORDS: Readonly<Record<ConversationStatus, string>> = {
  STARTING: "starting",
  RUNNING: "awake",
  STOPPED: "asleep",
  ARCHIVED: "archived",
  ERROR: "failed",
};

export const MAX_TITLE = 200;

interface ConversationRowProps {
  readonly info: ConversationInfo;
  readonly current: boolean;
  readonly onOpen: () => void;
  readonly onDelete: () => void;
}

export function ConversationRow({ info, current, onOpen, onDelete }: ConversationRowProps) {
  const services = useServices();
  const [renaming, setRenaming] = useState(false);
  const now = useNow(60_000);
  const changed = parseTimestamp(info.last_updated_at ?? info.created_at);

  const rename = (title: string) => {
    setRenaming(false);
    if (title === "" || title === info.title) return;
    services.conversations.rename(info.conversation_id, title).catch((error: unknown) => {
      services.toasts.error(`The new name could not be stored. ${errorText(error)}`);
    });
  };

  return (
    <li className={current ? "conversation current" : "conversation"} data-testid="conversation-item" data-id={info.conversation_id}>
      {renaming ? (
        <RenameField
          title={info.title}
          onDone={rename}
          onCancel={() => {
            setRenaming(false);
          }}
        />
      ) : (
        <>
          <Link
            href={`/conversations/${info.conversation_id}`}
            className="conversation-link"
            title={info.title}
            aria-current={current ? "page" : undefined}
            onClick={onOpen}
            onDoubleClick={() => {
              setRenaming(true);
            }}
          >
            <span className={`conversation-dot ${info.status.toLowerCase()}`} title={STATUS_WORDS[info.status]} />
            <bdi className="conversation-title">{info.title}</bdi>
            <span className="visually-hidden"> ({STATUS_WORDS[info.status]})</span>
            {changed !== null && <span className="conversation-ago">{formatAgo(changed, now)}</span>}
          </Link>
          <Menu
            label={`More for ${isolated(info.title)}`}
            className="icon-button small conversation-more"
            testId="conversation-menu"
            entries={[
              { label: "Rename", testId: "rename-conversation", onSelect: () => { setRenaming(true); } },
              { label: "Delete", testId: "delete-conversation", danger: true, onSelect: onDelete },
            ]}
          >
            <MoreIcon size={17} />
          </Menu>
        </>
      )}
    </li>
  );
}

interface RenameFieldProps {
  readonly title: string;
  readonly onDone: (title: string) => void;
  readonly onCancel: () => void;
}

export function RenameField({ title, onDone, onCancel }: RenameFieldProps) {
  const field = useRef<HTMLInputElement>(null);
  // Escape also takes the focus away, which must then not count as being done.
  const cancelled = useRef(false);
  useEffect(() => {
    field.current?.focus();
    field.current?.select();
  }, []);
  return (
    <input
      ref={field}
      className="rename-field"
      dir="auto"
      defaultValue={title}
      maxLength={MAX_TITLE}
      aria-label="Name of the conversation"
      data-testid="rename-input"
      onBlur={(event) => {
        if (!cancelled.current) onDone(event.target.value.trim());
      }}
      onKeyDown={(event) => {
        if (event.nativeEvent.isComposing) return;
        if (event.key === "Enter") event.currentTarget.blur();
        if (event.key === "Escape") {
          cancelled.current = true;
          onCancel();
        }
      }}
    />
  );
}
