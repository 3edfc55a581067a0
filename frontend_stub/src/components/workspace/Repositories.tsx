/** What is changed in the workspace's repositories, and what was committed. */
import { useState } from "react";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";
import type { Change, Commit, Repository, Since } from "../../net/workspace";
import { Visible } from "../common/Visible";
import { formatAgo, parseTimestamp } from "../../state/time";
import { useLoaded } from "./useLoaded";

const WORDS: Readonly<Record<string, string>> = { M: "changed", A: "new", D: "deleted", U: "in conflict" };

interface RepositoriesProps {
  readonly id: string;
  readonly version: number;
}

interface ChangesProps extends RepositoriesProps {
  readonly since: Since;
  readonly onSince: (since: Since) => void;
  readonly onOpen: (change: Change) => void;
}

export function Changes({ id, version, since, onSince, onOpen }: ChangesProps) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.repositories(id, since), `${version}:${since}`);
  if (error !== "") return <p className="tree-note bad">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  if (value.length === 0) return <p className="tree-note">The workspace has no git repository.</p>;
  const bases = new Set(value.map((repository) => repository.base).filter((base) => base !== ""));
  return (
    <>
      <p className="tree-note">
        Compared with{" "}
        {bases.size === 0 ? (
          "the last commit"
        ) : (
          <select
            className="since"
            aria-label="Compared with"
            data-testid="since"
            value={since}
            onChange={(event) => { onSince(event.target.value === "base" ? "base" : "commit"); }}
          >
            <option value="commit">the last commit</option>
            <option value="base">{bases.size === 1 ? [...bases][0] : "where the branches began"}</option>
          </select>
        )}
      </p>
      {value.map((repository) => (
        <section key={repository.path} className="repository" data-testid="repository">
          <Heading repository={repository} />
          {repository.changes.length === 0 && <p className="tree-note">Nothing is changed.</p>}
          <ul className="tree-list">
            {repository.changes.map((change) => (
              <li key={change.path} className="tree-row">
                <button type="button" className="tree-name" data-testid="change" onClick={() => { onOpen(change); }}>
                  <span className={`change-mark status-${change.status}`} title={WORDS[change.status] ?? ""} aria-hidden="true">
                    {change.status}
                  </span>
                  <span className="tree-text"><Visible text={change.path} /></span>
                  <span className="visually-hidden">{WORDS[change.status] ?? ""}</span>
                </button>
              </li>
            ))}
          </ul>
          {repository.leftOut > 0 && <p className="tree-note">… and {repository.leftOut} more</p>}
        </section>
      ))}
    </>
  );
}

export function History({ id, version }: RepositoriesProps) {
  const services = useServices();
  const { value, error } = useLoaded(() => services.workspace.repositories(id), String(version));
  if (error !== "") return <p className="tree-note bad">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  if (value.length === 0) return <p className="tree-note">The workspace has no git repository.</p>;
  return (
    <>
      {value.map((repository) => (
        <section key={repository.path} className="repository">
          <Heading repository={repository} />
          <Commits id={id} repository={repository} version={version} />
        </section>
      ))}
    </>
  );
}

function whenText(date: string): string {
  const time = parseTimestamp(date);
  return time === null ? date : formatAgo(time, Date.now());
}

function Heading({ repository }: { readonly repository: Repository }) {
  const { ahead, behind, upstream } = repository;
  const distance = [ahead > 0 ? `${ahead} ahead` : "", behind > 0 ? `${behind} behind` : ""].filter((text) => text !== "");
  return (
    <h3 className="repository-head">
      <span className="repository-branch">{repository.branch || repository.head.slice(0, 8) || "no commit yet"}</span>
      {repository.path !== "" && <span>{repository.path}</span>}
      {distance.length > 0 && <span title={upstream}>{distance.join(", ")}</span>}
    </h3>
  );
}

function Commits({ id, repository, version }: RepositoriesProps & { readonly repository: Repository }) {
  const services = useServices();
  const [older, setOlder] = useState<readonly Commit[]>([]);
  const [ended, setEnded] = useState(false);
  const { value, error } = useLoaded(() => services.workspace.history(id, repository.path, 0), String(version));
  if (error !== "") return <p className="tree-note bad">{error}</p>;
  if (value === null) return <p className="tree-note">Loading…</p>;
  const commits = [...value.commits, ...older];
  const more = () => {
    services.workspace.history(id, repository.path, commits.length).then(
      (page) => {
        setOlder([...older, ...page.commits]);
        setEnded(!page.hasMore);
      },
      (failed: unknown) => {
        services.toasts.error(`Older commits could not be loaded. ${errorText(failed)}`);
      },
    );
  };
  return (
    <ol className="commits" data-testid="commits">
      {commits.map((commit) => (
        <li key={commit.hash} title={commit.body}>
          <span className="commit-subject" dir="auto">{commit.subject}</span>
          <span className="commit-facts">
            <code>{commit.hash.slice(0, 8)}</code> <bdi>{commit.author}</bdi> · {whenText(commit.date)}
            {commit.refs.map((ref) => (
              <span key={ref} className="commit-ref">
                {ref}
              </span>
            ))}
          </span>
        </li>
      ))}
      {commits.length === 0 && <li className="tree-note">There is no commit yet.</li>}
      {value.hasMore && !ended && (
        <li>
          <button type="button" className="tree-more" onClick={more}>
            Older commits
          </button>
        </li>
      )}
    </ol>
  );
}
