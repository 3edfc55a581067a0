/** The workspace beside the conversation: its files, what is changed in them, and what was committed. */
import { useEffect, useRef, useState } from "react";
import type { DragEvent } from "react";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";
import type { NamedFile, Since } from "../../net/workspace";
import { CloseIcon } from "../common/icons";
import { usePanel } from "../common/usePanel";
import { isolated } from "../../app/isolated";
import { chosenFiles, droppedFiles, save } from "./files";
import { FileTree } from "./FileTree";
import { FileView } from "./FileView";
import type { Shown } from "./FileView";
import { Changes, History } from "./Repositories";

const TABS = [
  ["files", "Files"],
  ["changes", "Changes"],
  ["history", "History"],
] as const;

type Tab = (typeof TABS)[number][0];

interface WorkspacePanelProps {
  readonly id: string;
  /** Whether the sandbox runs, so that there is something to ask. */
  readonly awake: boolean;
  /** Changes when something may have changed in the workspace. */
  readonly beat: string;
  readonly onClose: () => void;
}

export function WorkspacePanel({ id, awake, beat, onClose }: WorkspacePanelProps) {
  const [tab, setTab] = useState<Tab>("files");
  const [asked, setAsked] = useState(0);
  const [shown, setShown] = useState<Shown | null>(null);
  const [since, setSince] = useState<Since>("commit");
  const [seen, setSeen] = useState({ beat, count: 0 });
  if (seen.beat !== beat) setSeen({ beat, count: seen.count + 1 });
  const version = asked + seen.count;
  const refresh = () => {
    setAsked(asked + 1);
  };
  const download = useDownload(id);
  const panel = usePanel(() => {
    if (shown === null) onClose();
    else setShown(null);
  });
  useEffect(() => {
    // What was pressed goes with the view that it was in.
    panel.current?.focus();
  }, [shown, panel]);

  return (
    <aside ref={panel} className="workspace-panel" aria-label="Workspace" tabIndex={-1} data-testid="workspace-panel">
      <div className="workspace-tabs">
        {TABS.map(([name, label]) => (
          <button
            key={name}
            type="button"
            className={`workspace-tab ${tab === name ? "current" : ""}`}
            aria-pressed={tab === name}
            data-testid={`workspace-tab-${name}`}
            onClick={() => {
              setTab(name);
              setShown(null);
            }}
          >
            {label}
          </button>
        ))}
        <button type="button" className="icon-button small" aria-label="Close the workspace" onClick={onClose}>
          <CloseIcon size={16} />
        </button>
      </div>
      {!awake && <p className="tree-note">The files can be seen while the conversation runs.</p>}
      {awake && shown !== null && (
        <FileView
          id={id}
          shown={shown}
          version={version}
          onBack={() => { setShown(null); }}
          onDownload={shown.as === "text" ? download : null}
        />
      )}
      {awake && shown === null && tab === "files" && (
        <Files id={id} version={version} onRefresh={refresh} onDownload={download} onOpen={(path) => { setShown({ path, as: "text" }); }} />
      )}
      {awake && shown === null && tab === "changes" && (
        <div className="workspace-body">
          <Changes
            id={id}
            version={version}
            since={since}
            onSince={setSince}
            onOpen={({ path }) => { setShown({ path, as: "change", since }); }}
          />
          <button type="button" className="tree-more" onClick={refresh}>Look again</button>
        </div>
      )}
      {awake && shown === null && tab === "history" && (
        <div className="workspace-body">
          <History id={id} version={version} />
        </div>
      )}
    </aside>
  );
}

function useDownload(id: string): (path: string, name: string) => void {
  const services = useServices();
  return (path, name) => {
    services.workspace.download(id, path).then(
      (blob) => {
        save(blob, name);
      },
      (error: unknown) => {
        services.toasts.error(`${isolated(name)} could not be downloaded. ${errorText(error)}`);
      },
    );
  };
}

interface FilesProps {
  readonly id: string;
  readonly version: number;
  readonly onRefresh: () => void;
  readonly onOpen: (path: string) => void;
  readonly onDownload: (path: string, name: string) => void;
}

/** The tree, and a place to drop files on. */
function Files({ id, version, onRefresh, onOpen, onDownload }: FilesProps) {
  const services = useServices();
  const field = useRef<HTMLInputElement>(null);
  const [busy, setBusy] = useState(false);
  const [over, setOver] = useState(false);

  const upload = async (files: Promise<readonly NamedFile[]> | readonly NamedFile[]) => {
    setBusy(true);
    try {
      const chosen = await files;
      if (chosen.length === 0) return;
      const { stored, skipped } = await services.workspace.upload(id, "", chosen);
      if (stored.length > 0) services.toasts.done(stored.length === 1 ? "1 file uploaded" : `${stored.length} files uploaded`);
      for (const { name, reason } of skipped.slice(0, 3)) services.toasts.error(`${isolated(name)} was not uploaded: ${reason}`);
    } catch (error) {
      services.toasts.error(`The upload failed. ${errorText(error)}`);
    } finally {
      setBusy(false);
      onRefresh();
    }
  };
  const drag = (event: DragEvent, inside: boolean) => {
    event.preventDefault();
    setOver(inside);
  };

  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-element-interactions -- dropping is one more way to what the button does
    <div
      className={`workspace-body ${over ? "over" : ""}`}
      role="group"
      aria-label="Files of the workspace"
      data-testid="drop-zone"
      onDragOver={(event) => { drag(event, true); }}
      onDragLeave={(event) => { drag(event, false); }}
      onDrop={(event) => {
        drag(event, false);
        void upload(droppedFiles(event.dataTransfer));
      }}
    >
      <div className="workspace-actions">
        <button type="button" className="button" disabled={busy} onClick={() => field.current?.click()}>
          {busy ? "Uploading…" : "Upload"}
        </button>
        <button type="button" className="button" onClick={() => { onDownload("", "workspace.zip"); }}>
          Download all
        </button>
        <button type="button" className="button" onClick={onRefresh}>
          Refresh
        </button>
        <input
          ref={field}
          type="file"
          multiple
          hidden
          aria-label="Files to upload"
          data-testid="upload-input"
          onChange={(event) => {
            void upload(chosenFiles(event.target.files));
            event.target.value = "";
          }}
        />
      </div>
      <FileTree id={id} version={version} onOpen={onOpen} onDownload={onDownload} />
      <p className="tree-note">Drop files or folders here to upload them.</p>
    </div>
  );
}
