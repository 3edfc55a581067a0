/** The files of the workspace, folder by folder. */
import { useState } from "react";
import { useServices } from "../../app/services";
import type { FolderEntry } from "../../net/workspace";
import { isolated } from "../../app/isolated";
import { Visible } from "../common/Visible";
import { ChevronIcon, DownIcon, FileIcon } from "../common/icons";
import { sizeText } from "./files";
import { useLoaded } from "./useLoaded";

interface FileTreeProps {
  readonly id: string;
  readonly version: number;
  readonly onOpen: (path: string) => void;
  readonly onDownload: (path: string, name: string) => void;
}

export function FileTree(props: FileTreeProps) {
  return (
    <div className="tree" data-testid="file-tree">
      <Folder {...props} path="" />
    </div>
  );
}

function Folder({ path, ...props }: FileTreeProps & { readonly path: string }) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.folder(props.id, path), `${path}:${props.version}`);
  const [all, setAll] = useState(false);
  if (error !== "") return <p className="tree-note bad">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  const hidden = value.entries.filter((entry) => entry.hidden).length;
  const shown = all ? value.entries : value.entries.filter((entry) => !entry.hidden);
  return (
    <ul className="tree-list">
      {shown.map((entry) => (
        <Entry key={entry.name} {...props} entry={entry} path={path === "" ? entry.name : `${path}/${entry.name}`} />
      ))}
      {value.entries.length === 0 && <li className="tree-note">{path === "" ? "There are no files yet." : "Empty"}</li>}
      {value.leftOut > 0 && <li className="tree-note">… and {value.leftOut} more</li>}
      {hidden > 0 && (
        <li>
          <button type="button" className="tree-more" onClick={() => { setAll(!all); }}>
            {all ? "Hide what is usually not looked at" : `Show ${hidden} hidden`}
          </button>
        </li>
      )}
    </ul>
  );
}

function Entry({ entry, path, ...props }: FileTreeProps & { readonly entry: FolderEntry; readonly path: string }) {
  const [open, setOpen] = useState(false);
  const isFolder = entry.kind === "folder";
  const download = () => {
    props.onDownload(path, isFolder ? `${entry.name}.zip` : entry.name);
  };
  return (
    <li>
      <div className={`tree-row ${entry.hidden ? "dim" : ""}`}>
        <button
          type="button"
          className="tree-name"
          data-testid="tree-entry"
          aria-expanded={isFolder ? open : undefined}
          disabled={entry.kind === "other"}
          onClick={() => {
            if (isFolder) setOpen(!open);
            else props.onOpen(path);
          }}
        >
          <span className={`tree-icon ${isFolder && open ? "open" : ""}`}>
            {isFolder ? <ChevronIcon size={14} /> : <FileIcon size={14} />}
          </span>
          <span className="tree-text">
            <Visible text={entry.name} />
            {entry.link && <span className="tree-link"> ↗</span>}
          </span>
          {entry.size !== null && <span className="tree-size">{sizeText(entry.size)}</span>}
        </button>
        {entry.kind !== "other" && (
          <button type="button" className="icon-button small tree-get" aria-label={`Download ${isolated(entry.name)}`} onClick={download}>
            <DownIcon size={14} />
          </button>
        )}
      </div>
      {open && <Folder {...props} path={path} />}
    </li>
  );
}
