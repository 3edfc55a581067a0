/** The agent's state: which one holds, since when, and what it ends or leaves behind. */
import type { AgentState, ObservationEvent } from "../protocol/events";
import { isAction } from "../protocol/events";
import type { StateFrame } from "../protocol/frames";
import { noteId } from "./model";
import type { ConversationModel } from "./model";
import { GENERAL_ERROR, tellsSame } from "./notices";
import { dropResponses } from "./streams";
import { parseTimestamp } from "./time";
import { addEvent, createTimeline } from "./timeline";

/** Id of a line that answers a frame without one. */
export const UNNUMBERED = -1;

/** States in which the agent says nothing more: unfinished text would otherwise stay for ever. */
const QUIET: ReadonlySet<AgentState> = new Set([
  "awaiting_user_input",
  "stopped",
  "finished",
  "rejected",
  "error",
  "awaiting_user_confirmation",
]);

/** States that only a running session has; the others may be an old one that is told again on connecting. */
const AWAKE: ReadonlySet<AgentState> = new Set([
  "running",
  "awaiting_user_input",
  "awaiting_user_confirmation",
  "user_confirmed",
  "user_rejected",
  "rate_limited",
]);

/** States in which work may be wanted that has to wait. */
const CAN_WAIT: ReadonlySet<AgentState> = new Set(["loading", "running", "user_confirmed"]);

export function takeState(model: ConversationModel, frame: StateFrame, at: number): void {
  const isNew = frame.id !== null && noteId(model, frame.id, frame.timestamp);
  // A replay sends the newest state last, though older than other events; an older state never overrides it.
  if (frame.id !== null && frame.id < model.agentStateId) return;
  if (frame.id !== null) model.agentStateId = frame.id;
  if (QUIET.has(frame.state)) dropResponses(model.streams);
  if (model.agentState !== frame.state) {
    model.agentState = frame.state;
    model.agentStateSince = (frame.timestamp === null ? null : parseTimestamp(frame.timestamp)) ?? at;
  }
  model.agentReason = frame.reason;
  if (frame.state !== "rate_limited") model.retry = "";
  if (!CAN_WAIT.has(frame.state)) model.waiting = "";
  if (AWAKE.has(frame.state) || (isNew && frame.state !== "loading")) endStart(model);
  if (frame.state === "error") takeError(model, frame, isNew);
  else if (isNew) model.failure = null;
}

/** One place tells of an error: the line in the history, in the words of the status that came before it. */
function takeError(model: ConversationModel, frame: StateFrame, isNew: boolean): void {
  const { failure } = model;
  const told = failure !== null && (failure.statusId === GENERAL_ERROR || tellsSame(failure, frame.reason));
  const text = told ? failure.text : "";
  if (told) model.failure = null;
  model.notices = model.notices.filter((entry) => !tellsSame(entry, frame.reason) && !(told && entry.text === text));
  if (isNew || frame.id === null) addErrorLine(model, { ...frame, detail: frame.detail || text });
}

export function endStart(model: ConversationModel): void {
  model.starting = false;
  model.startingSince = 0;
  model.progress = [];
}

/** Draws the timeline anew from all events. */
export function redraw(model: ConversationModel): void {
  model.timeline = createTimeline();
  for (const event of model.history) addEvent(model.timeline, event);
}

/** An error state leaves a line in the history, so that scrolling back tells what happened. */
function addErrorLine(model: ConversationModel, frame: StateFrame): void {
  const line = errorLine(frame);
  const last = model.history.at(-1);
  if (frame.id === null && last !== undefined && !isAction(last) && last.content === line.content) return;
  if (frame.id === null && model.history.some((event) => event.id === UNNUMBERED)) {
    // An answer without a place in the log is told again on every connection and every attempt: the newest stands.
    model.history = [...model.history.filter((event) => event.id !== UNNUMBERED), line];
    redraw(model);
    return;
  }
  model.history.push(line);
  addEvent(model.timeline, line);
}

export function errorLine(frame: StateFrame): ObservationEvent {
  return {
    id: frame.id ?? UNNUMBERED,
    timestamp: frame.timestamp ?? "",
    source: "environment",
    message: frame.reason,
    observation: "error",
    content: frame.reason,
    extras: { error_id: "", agent_state: "error", detail: frame.detail },
  };
}

/** History tells the state only until something newer is known. */
export function takeHistoricState(model: ConversationModel, frame: StateFrame, id: number): void {
  if (id < model.agentStateId) return;
  model.agentStateId = id;
  model.agentState = frame.state;
  model.agentReason = frame.reason;
  model.agentStateSince = parseTimestamp(frame.timestamp ?? "") ?? 0;
}
