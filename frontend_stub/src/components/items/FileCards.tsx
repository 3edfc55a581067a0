/** What happened to files: edits as diffs, and files that were looked at. */
import { useMemo } from "react";
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { numberField, stringField, stringListField } from "../../protocol/fields";
import { Code, languageOf } from "../common/CodeBlock";
import { diffOf } from "../common/diff";
import { DiffView } from "../common/DiffView";
import { FileList } from "../common/FileList";
import { FileIcon, PencilIcon } from "../common/icons";
import { folderEntries, numberedText } from "../common/numbered";
import { shortPath } from "../common/paths";
import { Picture } from "../common/Picture";
import { Visible } from "../common/Visible";
import { Fold, Step } from "./Step";
import { Underway, underwayTone } from "./Underway";

interface FileCardProps {
  readonly foldKey: string;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  readonly awake: boolean;
}

type Pair = Pick<FileCardProps, "action" | "observation">;

function pathOf({ action, observation }: Pair): string {
  return (
    (action === null ? "" : stringField(action.args, "path")) ||
    (observation === null ? "" : stringField(observation.extras, "path"))
  );
}

function Path({ path }: { readonly path: string }) {
  return (
    <code className="path" title={path}>
      <Visible text={shortPath(path)} />
    </code>
  );
}

function isImageData(url: string): boolean {
  return url.startsWith("data:image/");
}

/** How the server marks a result that is none. */
const FAILURE = "ERROR:\n";

function failed(observation: ObservationEvent | null): boolean {
  return observation !== null && (["error", "user_rejected"].includes(observation.observation) || observation.content.startsWith(FAILURE));
}

function failureText(observation: ObservationEvent | null): string {
  const text = observation === null ? "" : observation.content || observation.message;
  return text.startsWith(FAILURE) ? text.slice(FAILURE.length) : text;
}

const DOING: Readonly<Record<string, string>> = {
  create: "Creating",
  insert: "Editing",
  str_replace: "Editing",
  undo_edit: "Undoing an edit of",
  write: "Writing",
  view: "Reading",
};

const NOT_DONE: Readonly<Record<string, string>> = {
  create: "Could not create",
  insert: "Could not edit",
  str_replace: "Could not edit",
  undo_edit: "Could not undo an edit of",
  write: "Could not write",
};

const DONE: Readonly<Record<string, string>> = {
  create: "Created",
  insert: "Edited",
  str_replace: "Edited",
  undo_edit: "Undid an edit of",
  write: "Wrote",
  view: "Read",
};

function editCommand({ action, observation }: Pair): string {
  if (action?.action === "write" || observation?.observation === "write") return "write";
  const command = action === null ? "" : stringField(action.args, "command");
  if (command !== "") return command;
  return observation?.extras.prev_exist === false ? "create" : "str_replace";
}

function nullableText(event: ObservationEvent | null, name: string): string | null {
  const value = event?.extras[name];
  return typeof value === "string" ? value : null;
}

function useEditDiff({ action, observation }: Pair) {
  return useMemo(() => {
    const asked = (name: string) => (action === null ? "" : stringField(action.args, name));
    return diffOf({
      diff: nullableText(observation, "diff") ?? "",
      oldContent: nullableText(observation, "old_content"),
      newContent: nullableText(observation, "new_content"),
      command: asked("command"),
      oldText: asked("old_str"),
      newText: asked("new_str"),
      // A file, a draft or a patch: what there is to see until the result has its diff.
      fileText: asked("file_text") || asked("content"),
    });
  }, [action, observation]);
}

export function EditCard(props: FileCardProps) {
  const { action, observation, foldKey } = props;
  const busy = observation === null && props.awake;
  const command = editCommand(props);
  const diff = useEditDiff(props);
  if (command === "view") return <ReadCard {...props} />;
  const bad = failed(observation);
  const words = observation === null ? DOING : bad ? NOT_DONE : DONE;
  // An edit that a model wrote out may be written although it broke something.
  const wrote = bad && (nullableText(observation, "diff") ?? "") !== "";
  return (
    <Step
      icon={<PencilIcon size={14} />}
      tone={bad ? "bad" : busy ? underwayTone(action) : "plain"}
      testId="edit-card"
      action={action}
    >
      <div className="card">
        <div className="card-head">
          <span className="card-title">
            {(wrote ? "Edited, with problems:" : words[command]) ?? "Edited"} <Path path={pathOf(props)} />
          </span>
          {diff !== null && !bad && (
            <span className="diff-count">
              {diff.added > 0 && <span className="count-added">+{diff.added}</span>}{" "}
              {diff.removed > 0 && <span className="count-removed">−{diff.removed}</span>}
            </span>
          )}
          {busy && <Underway action={action} />}
        </div>
        {bad && <p className="card-error">{failureText(observation)}</p>}
        {diff !== null && !bad && <DiffView diff={diff} foldKey={foldKey} />}
        {diff !== null && bad && (
          <div className="card-fold">
            <Fold foldKey={`${foldKey}:asked`} title={wrote ? "What it changed" : "What it wanted to change"}>
              <DiffView diff={diff} foldKey={foldKey} />
            </Fold>
          </div>
        )}
      </div>
    </Step>
  );
}

function counted(count: number, one: string, many: string): string {
  return `${count} ${count === 1 ? one : many}`;
}

function FileText({ text, numbers, language }: { readonly text: string; readonly numbers: readonly string[]; readonly language: string }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
    <pre className={numbers.length > 0 ? "file-text numbered" : "file-text"} tabIndex={0} aria-label="File content">
      {numbers.length > 0 && (
        <span className="file-numbers" aria-hidden="true">
          {numbers.join("\n")}
        </span>
      )}
      <Code text={text} language={language} />
    </pre>
  );
}

export function ReadCard(props: FileCardProps) {
  const { action, observation, foldKey } = props;
  const busy = observation === null && props.awake;
  const path = pathOf(props);
  const bad = failed(observation);
  const start = action === null ? 0 : (numberField(action.args, "start") ?? 0);
  const content = observation?.content ?? "";
  // A read of a client's own has a picture in place of the text; one of the agent's has it beside.
  const images =
    observation === null ? [] : [...stringListField(observation.extras, "image_urls"), content].filter(isImageData);
  const numbered = useMemo(() => numberedText(content), [content]);
  const entries = useMemo(() => folderEntries(content), [content]);
  const lines = numbered?.lines.length ?? (content === "" ? 0 : content.replace(/\n$/, "").split("\n").length);
  const aside =
    entries !== null
      ? counted(entries.length, "entry", "entries")
      : numbered !== null && numbered.first > 1
        ? `lines ${numbered.first} to ${numbered.last}`
        : counted(lines, "line", "lines");
  const title = (
    <>
      {observation === null ? "Reading" : bad ? "Could not read" : entries === null ? "Read" : "Looked into"} <Path path={path} />
      {start > 1 ? ` from line ${start}` : ""}
    </>
  );
  return (
    <Step
      icon={<FileIcon size={14} />}
      tone={bad ? "bad" : busy ? underwayTone(action) : "plain"}
      testId="read-card"
      action={action}
    >
      {observation === null ? (
        <div className="line">
          {title} {busy && <Underway action={action} />}
        </div>
      ) : bad ? (
        <div className="card">
          <div className="card-head">
            <span className="card-title">{title}</span>
          </div>
          <p className="card-error">{failureText(observation)}</p>
        </div>
      ) : images.length > 0 ? (
        <Fold foldKey={foldKey} title={title} aside="image">
          {images.map((image, index) => (
            <Picture key={index} place={String(index)} src={image} alt={image === content ? path : content} />
          ))}
        </Fold>
      ) : (
        <Fold foldKey={foldKey} title={title} aside={aside}>
          {entries !== null ? (
            <FileList paths={entries} label="Folder" />
          ) : (
            <FileText text={numbered === null ? content : numbered.lines.join("\n")} numbers={numbered?.numbers ?? []} language={languageOf(path)} />
          )}
        </Fold>
      )}
    </Step>
  );
}
