/**
 * The drawn history: one item per message or per action with its answer.
 *
 * The list is changed in place, at O(1) per event; each item is immutable and replaced when it changes, so a row
 * can be compared by identity. Whoever holds a Timeline counts versions to know that it changed.
 */
import type { ActionEvent, ConversationEvent, ObservationEvent } from "../protocol/events";
import { isAction } from "../protocol/events";
import { booleanField, numberField, stringField } from "../protocol/fields";
import { Branches } from "./branches";
import { placeUpTo } from "./places";

export type ItemKind =
  | "user"
  | "agent"
  | "command"
  | "browser"
  | "edit"
  | "read"
  | "think"
  | "finish"
  | "error"
  | "condensation"
  | "tasks"
  | "mcp"
  | "delegate"
  | "recall"
  | "system"
  | "notice"
  | "rewind"
  | "generic";

export interface TimelineItem {
  /** Stable over the life of the item: the id of its action where there is one. */
  readonly key: string;
  readonly kind: ItemKind;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  /** Whether the conversation was taken back to before it. */
  readonly undone: boolean;
  /** Of a rewind: what the history goes on after, in words. */
  readonly place?: string;
}

export interface Timeline {
  readonly items: TimelineItem[];
  /** Position in `items` by the id of the action (or, for an orphaned observation, by its cause). */
  readonly positions: Map<number, number>;
  /** Ids of the actions that wait for approval, in their order: a batch is decided on as a whole. */
  awaiting: readonly number[];
  readonly branches: Branches;
  /** How many items are undone. */
  undone: number;
}

export function createTimeline(): Timeline {
  return { items: [], positions: new Map(), awaiting: [], branches: new Branches(), undone: 0 };
}

const HIDDEN_ACTIONS: ReadonlySet<string> = new Set(["null", "recall", "change_agent_state", "loop_recovery"]);
const HIDDEN_OBSERVATIONS: ReadonlySet<string> = new Set(["null", "agent_state_changed"]);

const ACTION_KINDS: Readonly<Record<string, ItemKind>> = {
  run: "command",
  run_ipython: "command",
  browse: "browser",
  browse_interactive: "browser",
  edit: "edit",
  write: "edit",
  read: "read",
  think: "think",
  finish: "finish",
  reject: "notice",
  rewind: "rewind",
  system: "system",
  condensation: "condensation",
  condensation_request: "condensation",
  task_tracking: "tasks",
  call_tool_mcp: "mcp",
  delegate: "delegate",
};

const OBSERVATION_KINDS: Readonly<Record<string, ItemKind>> = {
  run: "command",
  run_ipython: "command",
  browse: "browser",
  edit: "edit",
  write: "edit",
  read: "read",
  think: "think",
  error: "error",
  recall: "recall",
  condense: "condensation",
  task_tracking: "tasks",
  mcp: "mcp",
  delegate: "delegate",
  user_rejected: "notice",
  loop_detection: "notice",
  success: "notice",
};

function actionKind(event: ActionEvent): ItemKind {
  if (event.action === "message") return event.source === "user" ? "user" : "agent";
  return ACTION_KINDS[event.action] ?? "generic";
}

function awaitsApproval(event: ActionEvent): boolean {
  return stringField(event.args, "confirmation_state") === "awaiting_confirmation";
}

export function addEvent(timeline: Timeline, event: ConversationEvent): void {
  if (isAction(event)) addAction(timeline, event);
  else addObservation(timeline, event);
}

function addAction(timeline: Timeline, event: ActionEvent): void {
  if (HIDDEN_ACTIONS.has(event.action) || booleanField(event.args, "hidden")) return;
  const question = questionOf(timeline, event);
  if (question !== null) {
    replaceQuestion(timeline, question, event);
    return;
  }
  // Going back leaves questions behind that nobody will answer.
  if (event.action === "rewind") timeline.awaiting = [];
  const place = event.action === "rewind" ? { place: takeBack(timeline, event) } : {};
  const position = timeline.items.length;
  timeline.items.push({ key: `e${event.id}`, kind: actionKind(event), action: event, observation: null, undone: false, ...place });
  timeline.positions.set(event.id, position);
  if (awaitsApproval(event)) timeline.awaiting = [...timeline.awaiting, event.id];
}

/** Marks what counts no more, or counts again; the only step here that looks at all items. Returns the place in words. */
function takeBack(timeline: Timeline, event: ActionEvent): string {
  const to = numberField(event.args, "to") ?? -1;
  timeline.branches.rewind(event.id, to);
  const counts = timeline.branches.counting();
  timeline.undone = 0;
  timeline.items.forEach((item, index) => {
    // What was asked and approved has the id of the approval: its first id says where it stands.
    const undone = !counts(Number(item.key.slice(1)));
    if (undone) timeline.undone += 1;
    if (undone !== item.undone) timeline.items[index] = { ...item, undone };
  });
  return to < 0 ? "" : placeUpTo(timeline.items, to);
}

function awaited(timeline: Timeline, id: number): ActionEvent | null {
  const position = timeline.positions.get(id);
  return position === undefined ? null : (timeline.items[position]?.action ?? null);
}

/** The actions that wait for approval, in their order. */
export function awaitedActions(timeline: Timeline): readonly ActionEvent[] {
  return timeline.awaiting.map((id) => awaited(timeline, id)).filter((action) => action !== null);
}

/** An answered approval comes as the same action under a new id (protocol 3.7): one card shows both. */
function questionOf(timeline: Timeline, event: ActionEvent): number | null {
  const state = stringField(event.args, "confirmation_state");
  if (state !== "confirmed" && state !== "rejected") return null;
  const call = event.tool_call_metadata?.tool_call_id;
  const asks = (id: number) => {
    const action = awaited(timeline, id);
    return action?.action === event.action && action.tool_call_metadata?.tool_call_id === call;
  };
  return timeline.awaiting.find(asks) ?? null;
}

function replaceQuestion(timeline: Timeline, question: number, event: ActionEvent): void {
  timeline.awaiting = timeline.awaiting.filter((id) => id !== question);
  const position = timeline.positions.get(question);
  const item = position === undefined ? undefined : timeline.items[position];
  if (position === undefined || item === undefined) return;
  // The second copy carries no thought; the first one's is kept.
  const thought = item.action === null ? "" : stringField(item.action.args, "thought");
  const action = { ...event, args: { ...event.args, thought: stringField(event.args, "thought") || thought } };
  timeline.items[position] = { ...item, action };
  timeline.positions.set(event.id, position);
}

function addObservation(timeline: Timeline, event: ObservationEvent): void {
  if (HIDDEN_OBSERVATIONS.has(event.observation)) return;
  const position = event.cause === undefined ? undefined : timeline.positions.get(event.cause);
  const item = position === undefined ? undefined : timeline.items[position];
  if (position !== undefined && item?.observation === null) {
    timeline.items[position] = { ...item, observation: event };
    timeline.awaiting = timeline.awaiting.filter((id) => id !== event.cause);
    return;
  }
  // The receipt for a thought says nothing by itself.
  if (booleanField(event.extras, "hidden") || event.observation === "think") return;
  // The answer to an action that is hidden or not loaded yet stands alone, under its action's key.
  const owner = position === undefined ? (event.cause ?? event.id) : event.id;
  timeline.positions.set(owner, timeline.items.length);
  timeline.items.push({
    key: `e${owner}`,
    kind: OBSERVATION_KINDS[event.observation] ?? "generic",
    action: null,
    observation: event,
    undone: false,
  });
}
