/** One file: its text, or how it differs from the last commit. */
import { useServices } from "../../app/services";
import { CodeBlock, languageOf } from "../common/CodeBlock";
import { compare } from "../common/diff";
import { DiffView } from "../common/DiffView";
import { BackIcon, DownIcon } from "../common/icons";
import { useLoaded } from "./useLoaded";

export interface Shown {
  readonly path: string;
  readonly as: "text" | "change";
}

interface FileViewProps {
  readonly id: string;
  readonly shown: Shown;
  readonly version: number;
  readonly onBack: () => void;
  readonly onDownload: ((path: string, name: string) => void) | null;
}

export function FileView({ id, shown, version, onBack, onDownload }: FileViewProps) {
  const name = shown.path.slice(shown.path.lastIndexOf("/") + 1);
  return (
    <div className="file-view" data-testid="file-view">
      <div className="file-view-head">
        <button type="button" className="icon-button small" aria-label="Back to the list" onClick={onBack}>
          <BackIcon size={16} />
        </button>
        <span className="file-view-path">{shown.path}</span>
        {onDownload !== null && (
          <button
            type="button"
            className="icon-button small"
            aria-label={`Download ${name}`}
            onClick={() => { onDownload(shown.path, name); }}
          >
            <DownIcon size={16} />
          </button>
        )}
      </div>
      {shown.as === "text" ? <FileText id={id} path={shown.path} version={version} /> : <FileChange id={id} path={shown.path} version={version} />}
    </div>
  );
}

interface ContentProps {
  readonly id: string;
  readonly path: string;
  readonly version: number;
}

function FileText({ id, path, version }: ContentProps) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.text(id, path), `${path}:${version}`);
  if (error !== "") return <p className="tree-note">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  return value === "" ? <p className="tree-note">The file is empty.</p> : <CodeBlock text={value} language={languageOf(path)} />;
}

function FileChange({ id, path, version }: ContentProps) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.versions(id, path), `${path}:${version}`);
  if (error !== "") return <p className="tree-note">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  const diff = compare(value.original, value.modified);
  return diff === null ? <p className="tree-note">The text is the same.</p> : <DiffView diff={diff} foldKey={`workspace:${path}`} />;
}
