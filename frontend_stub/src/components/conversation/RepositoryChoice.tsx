/** Which repository a new conversation begins with: nothing, until somebody wants one. */
import { useEffect, useId, useRef } from "react";
import type { StartingPoint } from "../../protocol/rest";
import { BranchIcon, CloseIcon } from "../common/icons";
import { isRepository } from "./repository";

interface RepositoryChoiceProps {
  /** Null where the conversation begins with an empty workspace. */
  readonly value: StartingPoint | null;
  readonly disabled: boolean;
  readonly onChange: (value: StartingPoint | null) => void;
}

/** The button that begins the choice; gone while there is one. */
export function AddRepository({ value, disabled, onChange }: RepositoryChoiceProps) {
  if (value !== null) return null;
  return (
    <button
      type="button"
      className="repository-add"
      disabled={disabled}
      data-testid="add-repository"
      onClick={() => { onChange({ repository: "", branch: "" }); }}
    >
      <BranchIcon size={15} /> Repository
    </button>
  );
}

/** The two fields of the choice. */
export function RepositoryFields({ value, disabled, onChange }: RepositoryChoiceProps) {
  const id = useId();
  const first = useRef<HTMLInputElement>(null);
  const isOpen = value !== null;
  useEffect(() => {
    if (isOpen) first.current?.focus();
  }, [isOpen]);
  if (value === null) return null;
  const wrong = value.repository.trim() !== "" && !isRepository(value.repository);
  return (
    <div className="repository-choice" role="group" aria-label="Repository to begin with">
      <label className="repository-field wide">
        <span>Repository</span>
        <input
          ref={first}
          value={value.repository}
          placeholder="owner/name, or an https address"
          spellCheck={false}
          autoCapitalize="none"
          autoComplete="off"
          disabled={disabled}
          aria-invalid={wrong}
          aria-describedby={`${id}-help`}
          data-testid="repository-name"
          onChange={(event) => { onChange({ ...value, repository: event.target.value }); }}
        />
      </label>
      <label className="repository-field">
        <span>Branch</span>
        <input
          value={value.branch}
          placeholder="its default"
          spellCheck={false}
          autoCapitalize="none"
          autoComplete="off"
          disabled={disabled}
          data-testid="repository-branch"
          onChange={(event) => { onChange({ ...value, branch: event.target.value }); }}
        />
      </label>
      <button type="button" className="icon-button small" aria-label="Begin without a repository" disabled={disabled} onClick={() => { onChange(null); }}>
        <CloseIcon size={16} />
      </button>
      <p id={`${id}-help`} className={wrong ? "repository-help bad" : "repository-help"}>
        {wrong
          ? "Write owner/name, or an address that begins with https://, without a user's name in it."
          : "It is cloned into the workspace before the agent begins."}
      </p>
    </div>
  );
}
