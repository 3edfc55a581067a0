/** The conversation's name, and what can be done with the whole of it. */
import { lazy, Suspense, useState } from "react";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";
import type { ConversationModel } from "../../state/model";
import type { Phase } from "../../state/phase";
import { ConfirmDialog } from "../common/ConfirmDialog";
import { MoreIcon } from "../common/icons";
import { isolated } from "../../app/isolated";
import { Menu } from "../common/Menu";
import type { MenuEntry } from "../common/Menu";
import { RenameField } from "../shell/ConversationRow";
import { DrawerButton } from "../shell/Shell";
import { save as saveFile } from "../workspace/files";

const ShareDialog = lazy(() => import("./ShareDialog"));

interface ConversationHeaderProps {
  readonly model: ConversationModel;
  readonly phase: Phase;
  readonly onRename: (title: string) => void;
  readonly onPorts: () => void;
  readonly onSleep: () => void;
  readonly onDeleted: () => void;
  /** Shows or hides the workspace beside the conversation. */
  readonly onWorkspace: () => void;
}

const CONNECTION_WORDS = {
  idle: "",
  live: "",
  connecting: "Connecting",
  reconnecting: "Reconnecting",
  refused: "Not connected",
} as const;

export function ConversationHeader(props: ConversationHeaderProps) {
  const { model, phase, onRename, onPorts, onSleep, onDeleted, onWorkspace } = props;
  const services = useServices();
  const [renaming, setRenaming] = useState(false);
  const [deleting, setDeleting] = useState(false);
  const [sharing, setSharing] = useState(false);
  const id = model.conversationId;
  const title = model.info?.title ?? "";

  const rename = (next: string) => {
    setRenaming(false);
    if (next === "" || next === title) return;
    onRename(next);
    services.conversations.rename(id, next).catch((error: unknown) => {
      onRename(title);
      services.toasts.error(`The new name could not be stored. ${errorText(error)}`);
    });
  };

  const remove = () => {
    setDeleting(false);
    services.conversations.remove(id).then(onDeleted, (error: unknown) => {
      services.toasts.error(`The conversation could not be deleted. ${errorText(error)}`);
    });
  };

  const saveRecording = () => {
    services.api.recording(id).then(
      (events) => {
        saveFile(new Blob([JSON.stringify(events, null, 2)], { type: "application/json" }), `trajectory-${id}.json`);
      },
      (error: unknown) => {
        services.toasts.error(`The recording could not be saved. ${errorText(error)}`);
      },
    );
  };

  const own = (model.info?.access ?? "owner") === "owner";
  const saving = { label: "Save a recording", testId: "header-export", onSelect: saveRecording };
  const entries: MenuEntry[] = !own ? [saving] : [
    { label: "Rename", testId: "header-rename", onSelect: () => { setRenaming(true); } },
    { label: "Ports", testId: "header-ports", onSelect: onPorts },
    { label: "Share", testId: "header-share", onSelect: () => { setSharing(true); } },
    saving,
    ...(phase === "asleep" || phase === "archived"
      ? []
      : [{ label: "Put to sleep", testId: "header-sleep", onSelect: onSleep }]),
    { label: "Delete", testId: "header-delete", danger: true, onSelect: () => { setDeleting(true); } },
  ];

  return (
    <header className="topbar">
      <DrawerButton />
      {renaming ? (
        <RenameField title={title} onDone={rename} onCancel={() => { setRenaming(false); }} />
      ) : (
        <h1 className="topbar-title" dir="auto" data-testid="conversation-title">
          {title}
        </h1>
      )}
      <span className={`connection ${model.connection}`} role="status" data-testid="connection-state" data-connection={model.connection}>
        {CONNECTION_WORDS[model.connection]}
      </span>
      <button type="button" className="button" data-testid="workspace-toggle" onClick={onWorkspace}>
        Workspace
      </button>
      <Menu label="More for this conversation" entries={entries} testId="header-menu">
        <MoreIcon />
      </Menu>
      {sharing && (
        <Suspense>
          <ShareDialog id={id} onClose={() => { setSharing(false); }} />
        </Suspense>
      )}
      {deleting && (
        <ConfirmDialog
          title="Delete this conversation?"
          text={`“${isolated(title)}”, its history and its sandbox with all files in it will be gone for good.`}
          confirmLabel="Delete"
          onCancel={() => { setDeleting(false); }}
          onConfirm={remove}
        />
      )}
    </header>
  );
}
