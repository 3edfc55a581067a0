/** A search for files: what was looked for, how many were found, and on request which. */
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { objectField, stringField } from "../../protocol/fields";
import { FileList } from "../common/FileList";
import { shortPath } from "../common/paths";
import { SearchIcon } from "../common/icons";
import { Visible } from "../common/Visible";
import { Fold, Step } from "./Step";
import { Underway, underwayTone } from "./Underway";

interface SearchCardProps {
  readonly foldKey: string;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  readonly awake: boolean;
}

interface SearchResult {
  readonly files: readonly string[];
  /** What is said beside the list: that there are more, what could not be read, or what is wrong. */
  readonly remarks: readonly string[];
  readonly bad: boolean;
}

/** So many files are seen at once. */
const SHORT_LIST = 6;

const SEARCHES: ReadonlySet<string> = new Set(["grep", "glob"]);
const FOUND = /^Found \d+ file\(s\) /;
const NOTHING = "No files found ";

function wanted(action: ActionEvent | null): { readonly name: string; readonly pattern: string; readonly where: string } | null {
  if (action === null) return null;
  const name = stringField(action.args, "name");
  const given = objectField(action.args, "arguments") ?? {};
  const pattern = stringField(given, "pattern");
  if (!SEARCHES.has(name) || pattern === "") return null;
  const places = [stringField(given, "include"), shortPath(stringField(given, "path"))];
  return { name, pattern, where: places.filter((place) => place !== "").join(" in ") };
}

/** Whether a tool's call is such a search; a tool of another server may have the same name. */
export function isFileSearch(action: ActionEvent | null): boolean {
  return wanted(action) !== null;
}

/** The text of a failed tool's result, which the protocol wraps. */
function errorText(content: string): string {
  try {
    const result = JSON.parse(content) as { readonly content?: readonly { readonly text?: unknown }[] };
    return (result.content ?? []).map((part) => (typeof part.text === "string" ? part.text : "")).join("\n") || content;
  } catch {
    return content;
  }
}

export function searchResult(observation: ObservationEvent): SearchResult {
  const text = observation.content || observation.message;
  if (!FOUND.test(text)) {
    const bad = !text.startsWith(NOTHING);
    const said = bad ? errorText(text) : text.split("\n").slice(1).join("\n");
    return { files: [], remarks: said === "" ? [] : [said], bad };
  }
  const lines = text.split("\n").slice(1);
  const isRemark = (line: string) => line.startsWith("[") && line.endsWith("]");
  return { files: lines.filter((line) => !isRemark(line)), remarks: lines.filter(isRemark).map((line) => line.slice(1, -1)), bad: false };
}

function count(files: number): string {
  return files === 1 ? "1 file" : `${files === 0 ? "no" : files} files`;
}

export function SearchCard({ foldKey, action, observation, awake }: SearchCardProps) {
  const asked = wanted(action) ?? { name: "", pattern: "", where: "" };
  const result = observation === null ? null : searchResult(observation);
  const busy = result === null && awake;
  const bad = result?.bad ?? false;
  const title = (
    <>
      {asked.name === "glob" ? "Looked for files named" : "Searched for"} <code className="path"><Visible text={asked.pattern} /></code>
      {asked.where !== "" && <span className="dim"> in <bdi><Visible text={asked.where} /></bdi></span>}
      {result !== null && !bad && <span className="dim"> · {count(result.files.length)}</span>}
    </>
  );
  const empty = result === null || (result.files.length === 0 && result.remarks.length === 0);
  return (
    <Step
      icon={<SearchIcon size={14} />}
      tone={bad ? "bad" : busy ? underwayTone(action) : "plain"}
      testId="search-card"
      action={action}
    >
      {empty ? (
        <div className="line">
          <span>{title}</span> {busy && <Underway action={action} />}
        </div>
      ) : (
        <Fold foldKey={foldKey} title={title} initiallyOpen={bad || result.files.length <= SHORT_LIST}>
          {result.files.length > 0 && <FileList paths={result.files.map(shortPath)} />}
          {result.remarks.map((remark) => (
            <p key={remark} className={bad ? "card-error" : "dim"}>
              {remark}
            </p>
          ))}
        </Fold>
      )}
    </Step>
  );
}
