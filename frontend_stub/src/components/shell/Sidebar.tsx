/** The list of conversations, with the way to a new one and what the server runs on. */
import { useEffect, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { useServices } from "../../app/services";
import { BASE_PATH } from "../../net/base-path";
import { errorText } from "../../net/http";
import type { ConversationInfo } from "../../protocol/rest";
import type { ConversationList } from "../../state/conversations";
import { useReadable } from "../../state/store";
import { ConfirmDialog } from "../common/ConfirmDialog";
import { CloseIcon, GearIcon, PlusIcon } from "../common/icons";
import { isolated } from "../../app/isolated";
import { Logo } from "../common/Logo";
import { Spinner } from "../common/Spinner";
import { ConversationRow } from "./ConversationRow";
import { SearchField } from "./SearchField";
import { ServerFacts } from "./ServerFacts";
import { ThemeButton } from "./ThemeButton";

const FEW = 8;

interface SidebarProps {
  /** Closes the drawer at phone width; does nothing elsewhere. */
  readonly onLeave: () => void;
}

export function Sidebar({ onLeave }: SidebarProps) {
  const services = useServices();
  const list = useReadable(services.conversations.store);
  const [location, navigate] = useLocation();
  const [doomed, setDoomed] = useState<ConversationInfo | null>(null);

  const remove = (info: ConversationInfo) => {
    setDoomed(null);
    services.conversations.remove(info.conversation_id).then(
      () => {
        services.toasts.done("Conversation deleted");
        if (window.location.pathname === `${BASE_PATH}/conversations/${info.conversation_id}`) navigate("/");
      },
      (error: unknown) => {
        services.toasts.error(`“${isolated(info.title)}” could not be deleted. ${errorText(error)}`);
      },
    );
  };

  return (
    <div className="sidebar">
      <div className="sidebar-head">
        <Link href="/" className="brand" onClick={onLeave}>
          <Logo size={28} />
          <span>Drydock</span>
        </Link>
        <button type="button" className="icon-button drawer-close" aria-label="Close the list" onClick={onLeave}>
          <CloseIcon />
        </button>
      </div>
      <Link href="/" className="button new-button" data-testid="new-conversation" onClick={onLeave}>
        <PlusIcon size={16} /> New conversation
      </Link>
      {isWorthSearching(list) && <SearchField />}
      <nav className="conversations" aria-label="Conversations" data-testid="conversation-list">
        {list.items.length > 0 && (
          <ul>
            {list.items.map((info) => (
              <ConversationRow
                key={info.conversation_id}
                info={info}
                current={location === `/conversations/${info.conversation_id}`}
                onOpen={onLeave}
                onDelete={() => {
                  setDoomed(info);
                }}
              />
            ))}
          </ul>
        )}
        {list.loaded && list.items.length === 0 && (
          <p className="list-note" role="status">
            {list.query === ""
              ? "Your conversations will be listed here."
              : `No conversation has “${isolated(list.query)}” in its title, its repository or its id.`}
          </p>
        )}
        {!list.loaded && list.error === "" && (
          <p className="list-note">
            <Spinner /> Loading
          </p>
        )}
        {list.error !== "" && (
          <p className="list-note bad" role="status">
            {list.error}
          </p>
        )}
        {list.nextPageId !== null && <MoreButton loading={list.loading} onMore={() => void services.conversations.loadMore()} />}
      </nav>
      <div className="sidebar-foot">
        <ServerFacts />
        <div className="sidebar-tools">
          <Link href="/settings" className="foot-link" data-testid="settings-link" onClick={onLeave}>
            <GearIcon size={17} /> Settings
          </Link>
          <ThemeButton />
        </div>
      </div>
      {doomed !== null && (
        <ConfirmDialog
          title="Delete this conversation?"
          text={`“${isolated(doomed.title)}”, its history and its sandbox with all files in it will be gone for good.`}
          confirmLabel="Delete"
          onCancel={() => {
            setDoomed(null);
          }}
          onConfirm={() => {
            remove(doomed);
          }}
        />
      )}
    </div>
  );
}

/** A few are found at a glance; what was looked for stays changeable, however few were found. */
function isWorthSearching(list: ConversationList): boolean {
  return list.query !== "" || list.nextPageId !== null || list.items.length >= FEW;
}

/** Loads the next page when it scrolls into view, or when it is pressed. */
function MoreButton({ loading, onMore }: { readonly loading: boolean; readonly onMore: () => void }) {
  const button = useRef<HTMLButtonElement>(null);
  const ask = useRef(onMore);
  useEffect(() => {
    ask.current = onMore;
  });
  useEffect(() => {
    const element = button.current;
    if (element === null || loading) return;
    const observer = new IntersectionObserver((entries) => {
      if (entries.some((entry) => entry.isIntersecting)) ask.current();
    });
    observer.observe(element);
    return () => {
      observer.disconnect();
    };
  }, [loading]);
  return (
    <button ref={button} type="button" className="more-button" data-testid="load-more" disabled={loading} onClick={onMore}>
      {loading ? <Spinner /> : "Show more"}
    </button>
  );
}
