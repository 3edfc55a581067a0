/** One file: its text, its picture, or how it differs from what it was. */
import { useEffect, useState } from "react";
import { useServices } from "../../app/services";
import { CodeBlock, languageOf } from "../common/CodeBlock";
import { compare } from "../common/diff";
import { DiffView } from "../common/DiffView";
import { BackIcon, DownIcon } from "../common/icons";
import { isolated } from "../../app/isolated";
import { Visible } from "../common/Visible";
import type { Since } from "../../net/workspace";
import { isPicture } from "./files";
import { useLoaded } from "./useLoaded";

export interface Shown {
  readonly path: string;
  readonly as: "text" | "change";
  readonly since?: Since;
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
        <span className="file-view-path"><Visible text={shown.path} /></span>
        {onDownload !== null && (
          <button
            type="button"
            className="icon-button small"
            aria-label={`Download ${isolated(name)}`}
            onClick={() => { onDownload(shown.path, name); }}
          >
            <DownIcon size={16} />
          </button>
        )}
      </div>
      <Content id={id} shown={shown} version={version} />
    </div>
  );
}

interface ContentProps {
  readonly id: string;
  readonly path: string;
  readonly version: number;
}

function Content({ id, shown: { path, as, since = "commit" }, version }: Pick<FileViewProps, "id" | "shown" | "version">) {
  if (as === "change") return <FileChange id={id} path={path} version={version} since={since} />;
  if (isPicture(path)) return <FilePicture key={path} id={id} path={path} version={version} />;
  return <FileText id={id} path={path} version={version} />;
}

function FilePicture({ id, path, version }: ContentProps) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.download(id, path), `${path}:${version}`);
  const [address, setAddress] = useState("");
  useEffect(() => {
    if (value === null) return undefined;
    const made = URL.createObjectURL(value);
    // eslint-disable-next-line react-hooks/set-state-in-effect -- the address has to be let go of again
    setAddress(made);
    return () => {
      URL.revokeObjectURL(made);
    };
  }, [value]);
  if (error !== "") return <p className="tree-note">{error}</p>;
  if (address === "") return <p className="tree-note">Loading…</p>;
  return <img className="file-picture" src={address} alt={path} />;
}

function FileText({ id, path, version }: ContentProps) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.text(id, path), `${path}:${version}`);
  if (error !== "") return <p className="tree-note">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  return value === "" ? <p className="tree-note">The file is empty.</p> : <CodeBlock text={value} language={languageOf(path)} />;
}

function FileChange({ id, path, version, since }: ContentProps & { readonly since: Since }) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.versions(id, path, since), `${path}:${version}:${since}`);
  if (error !== "") return <p className="tree-note">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  const diff = compare(value.original, value.modified);
  return diff === null ? <p className="tree-note">The text is the same.</p> : <DiffView diff={diff} foldKey={`workspace:${path}`} />;
}
