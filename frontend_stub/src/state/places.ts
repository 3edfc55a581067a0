/** How a place in the history is called when one speaks of it. */
import { stringField } from "../protocol/fields";
import type { TimelineItem } from "./timeline";

const LONGEST = 60;

function quoted(text: string): string {
  const line = text.trim().split("\n", 1)[0] ?? "";
  return `“${line.length > LONGEST ? `${line.slice(0, LONGEST - 1)}…` : line}”`;
}

function fileName(path: string): string {
  return path.slice(path.lastIndexOf("/") + 1) || path;
}

/** What stands there; empty for what nobody would name. */
function nameOf({ kind, action, observation }: TimelineItem): string {
  const asked = (name: string) => (action === null ? "" : stringField(action.args, name));
  const path = fileName(asked("path") || (observation === null ? "" : stringField(observation.extras, "path")));
  switch (kind) {
    case "user":
      return `your message ${quoted(asked("content"))}`;
    case "agent":
      return `the agent’s words ${quoted(asked("content"))}`;
    case "command":
      return action?.action === "run_ipython" ? `the cell ${quoted(asked("code"))}` : `the command ${quoted(asked("command"))}`;
    case "edit":
      return `the edit of ${path}`;
    case "read":
      return `the reading of ${path}`;
    case "finish":
      return "the end of the task";
    case "browser":
      return "what it did in the browser";
    case "tasks":
      return "the task list";
    case "mcp":
      return `the tool ${asked("name")}`;
    case "delegate":
      return "the work of a sub-agent";
    default:
      return "";
  }
}

/** The last place up to event `to` that has a name, of the items that count; empty when there is none. */
export function placeUpTo(items: readonly TimelineItem[], to: number): string {
  for (let index = items.length - 1; index >= 0; index -= 1) {
    const item = items[index];
    if (item === undefined || item.undone || (item.action ?? item.observation)?.id === undefined) continue;
    if (((item.action ?? item.observation)?.id ?? 0) > to) continue;
    const name = nameOf(item);
    if (name !== "") return name;
  }
  return "";
}
