/**
 * Everything the conversation page knows, and how each frame changes it.
 *
 * `reduce` changes the model in place and does no I/O; the cost is O(1) per event, whatever the history's length.
 */
import type { AgentState, ConversationEvent, LlmMetrics, ObservationEvent } from "../protocol/events";
import { isAction } from "../protocol/events";
import { booleanField, stringField } from "../protocol/fields";
import type { Delta, Frame, StateFrame, StatusFrame } from "../protocol/frames";
import type { ConversationInfo } from "../protocol/rest";
import { isErrorStatus, progressLabel } from "../protocol/status";
import { applyDelta, createStreams, dropResponses, settle } from "./streams";
import type { Streams } from "./streams";
import { addEvent, createTimeline } from "./timeline";
import type { Timeline } from "./timeline";
import { parseTimestamp } from "./time";

export type Connection = "idle" | "connecting" | "live" | "reconnecting" | "refused";

/** A user's message that the server has not echoed yet. */
export interface PendingMessage {
  readonly key: string;
  readonly text: string;
  /** `held`: waits for a connection or for the agent to be ready. `sent`: on its way. `created`: sent with creation. */
  readonly state: "held" | "sent" | "created";
  /** The newest event id known when it was sent: its echo must be newer. */
  readonly after: number;
}

export interface Notice {
  readonly key: string;
  readonly level: "error" | "info";
  /** A status id, a reason or plain text; explained when drawn. */
  readonly text: string;
  readonly statusId: string;
}

export interface ProgressStep {
  readonly label: string;
  readonly at: number;
}

export interface ConversationModel {
  readonly conversationId: string;
  info: ConversationInfo | null;
  /** `missing`: the server knows no such conversation. */
  infoState: "loading" | "known" | "missing" | "failed";
  connection: Connection;
  refusal: string;
  timeline: Timeline;
  streams: Streams;
  readonly seen: Set<number>;
  /** Drawable events in order, kept to redraw when older history is put in front. */
  history: ConversationEvent[];
  /** Greatest event id received; -1 for none. */
  lastEventId: number;
  /** `unknown` until the first page of history is there. */
  older: "unknown" | "more" | "loading" | "none";
  /** How often older history was put in front of the timeline. */
  prepends: number;
  agentState: AgentState;
  agentReason: string;
  agentStateSince: number;
  agentStateId: number;
  starting: boolean;
  /** When this page asked for the start; 0 when it did not. */
  startingSince: number;
  progress: readonly ProgressStep[];
  retry: string;
  metrics: LlmMetrics | null;
  pending: readonly PendingMessage[];
  notices: readonly Notice[];
  noticeCount: number;
}

export type ModelAction =
  | { readonly type: "frame"; readonly frame: Frame; readonly at: number }
  | { readonly type: "delta"; readonly delta: Delta }
  | { readonly type: "history"; readonly events: readonly Frame[]; readonly hasMore: boolean }
  | { readonly type: "older-loading" }
  | { readonly type: "older-failed" }
  | { readonly type: "connection"; readonly connection: Connection; readonly refusal?: string }
  | { readonly type: "info"; readonly info: ConversationInfo }
  | { readonly type: "info-state"; readonly state: "missing" | "failed" }
  | { readonly type: "starting"; readonly starting: boolean; readonly at: number }
  | { readonly type: "pending-add"; readonly message: PendingMessage }
  | { readonly type: "pending-sent"; readonly key: string; readonly after: number }
  | { readonly type: "pending-held"; readonly key: string }
  | { readonly type: "pending-drop"; readonly key: string }
  | { readonly type: "notice"; readonly level: "error" | "info"; readonly text: string; readonly statusId?: string }
  | { readonly type: "notice-dismiss"; readonly key: string };

const NOTICE_LIMIT = 4;
const PROGRESS_LIMIT = 12;
/** Id of a line that answers a frame without one. */
const UNNUMBERED = -1;

export function createModel(conversationId: string): ConversationModel {
  return {
    conversationId,
    info: null,
    infoState: "loading",
    connection: "idle",
    refusal: "",
    timeline: createTimeline(),
    streams: createStreams(),
    seen: new Set(),
    history: [],
    lastEventId: -1,
    older: "unknown",
    prepends: 0,
    agentState: "loading",
    agentReason: "",
    agentStateSince: 0,
    agentStateId: -1,
    starting: false,
    startingSince: 0,
    progress: [],
    retry: "",
    metrics: null,
    pending: [],
    notices: [],
    noticeCount: 0,
  };
}

export function reduce(model: ConversationModel, action: ModelAction): void {
  switch (action.type) {
    case "frame":
      reduceFrame(model, action.frame, action.at);
      return;
    case "delta":
      applyDelta(model.streams, action.delta);
      if (action.delta.kind !== "output") model.retry = "";
      return;
    case "history":
      prependHistory(model, action.events, action.hasMore);
      return;
    case "older-loading":
      model.older = "loading";
      return;
    case "older-failed":
      model.older = "more";
      return;
    case "connection":
      setConnection(model, action.connection, action.refusal ?? "");
      return;
    case "info":
      takeInfo(model, action.info);
      return;
    case "info-state":
      if (model.infoState !== "known" || action.state === "missing") model.infoState = action.state;
      return;
    case "starting":
      model.starting = action.starting;
      model.startingSince = action.starting ? action.at : 0;
      if (action.starting) model.progress = [];
      return;
    case "pending-add":
      model.pending = [...model.pending, action.message];
      return;
    case "pending-sent":
      changePending(model, action.key, { state: "sent", after: action.after });
      return;
    case "pending-held":
      changePending(model, action.key, { state: "held" });
      return;
    case "pending-drop":
      model.pending = model.pending.filter((entry) => entry.key !== action.key);
      return;
    case "notice":
      addModelNotice(model, action.level, action.text, action.statusId ?? "");
      return;
    case "notice-dismiss":
      model.notices = model.notices.filter((entry) => entry.key !== action.key);
  }
}

function takeInfo(model: ConversationModel, info: ConversationInfo): void {
  model.info = info;
  model.infoState = "known";
  if (info.status === "STARTING") model.starting = true;
  else if (info.status === "ERROR" || info.status === "ARCHIVED") endStart(model);
  else if (info.status === "RUNNING" && model.agentState !== "loading") endStart(model);
}

function changePending(model: ConversationModel, key: string, change: Partial<PendingMessage>): void {
  model.pending = model.pending.map((entry) => (entry.key === key ? { ...entry, ...change } : entry));
}

function setConnection(model: ConversationModel, connection: Connection, refusal: string): void {
  model.connection = connection;
  model.refusal = refusal;
  // What was said while we were away is not sent again as deltas, so half a sentence would stay half.
  if (connection === "reconnecting" || connection === "idle") {
    dropResponses(model.streams);
    model.streams.output.clear();
  }
}

function reduceFrame(model: ConversationModel, frame: Frame, at: number): void {
  switch (frame.kind) {
    case "event":
      takeEvent(model, frame.event);
      return;
    case "state":
      takeState(model, frame, at);
      return;
    case "status":
      takeStatus(model, frame, at);
      return;
    case "error":
      addModelNotice(model, "error", frame.message, "");
  }
}

/** Notes an id. False when the event was drawn before: a replay may overlap what the page has. */
function noteId(model: ConversationModel, id: number): boolean {
  if (model.seen.has(id)) return false;
  model.seen.add(id);
  if (id > model.lastEventId) model.lastEventId = id;
  return true;
}

function takeEvent(model: ConversationModel, event: ConversationEvent): void {
  if (!noteId(model, event.id)) return;
  model.history.push(event);
  model.retry = "";
  addEvent(model.timeline, event);
  settle(model.streams, event);
  takeMetrics(model, event);
  takeEcho(model, event);
}

function takeMetrics(model: ConversationModel, event: ConversationEvent): void {
  if (event.llm_metrics === undefined || !isAction(event) || booleanField(event.args, "hidden")) return;
  model.metrics = event.llm_metrics;
}

/** The echo of a user's own message replaces its bubble. */
function takeEcho(model: ConversationModel, event: ConversationEvent): void {
  if (model.pending.length === 0 || event.source !== "user") return;
  if (!isAction(event) || event.action !== "message") return;
  const text = (stringField(event.args, "content") || event.message).trim();
  const echoed = model.pending.find(
    (entry) => entry.state !== "held" && entry.after < event.id && entry.text.trim() === text,
  );
  if (echoed !== undefined) model.pending = model.pending.filter((entry) => entry !== echoed);
}

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

function takeState(model: ConversationModel, frame: StateFrame, at: number): void {
  const isNew = frame.id !== null && noteId(model, frame.id);
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
  if (AWAKE.has(frame.state) || (isNew && frame.state !== "loading")) endStart(model);
  if (frame.state === "error") {
    model.notices = model.notices.filter((entry) => !tellsSame(entry, frame.reason));
    if (isNew || frame.id === null) addErrorLine(model, frame);
  }
}

function endStart(model: ConversationModel): void {
  model.starting = false;
  model.startingSince = 0;
  model.progress = [];
}

/** True when an error state says what the notice says; a state's reason may name the error's class in front. */
function tellsSame(notice: Pick<Notice, "statusId" | "text">, reason: string): boolean {
  if (reason === "") return false;
  return notice.statusId === reason || (notice.text !== "" && reason.endsWith(notice.text));
}

/** An error state leaves a line in the history, so that scrolling back tells what happened. */
function addErrorLine(model: ConversationModel, frame: StateFrame): void {
  const line = errorLine(frame);
  const last = model.history.at(-1);
  if (frame.id === null && last !== undefined && !isAction(last) && last.content === line.content) return;
  model.history.push(line);
  addEvent(model.timeline, line);
}

function errorLine(frame: StateFrame): ObservationEvent {
  return {
    id: frame.id ?? UNNUMBERED,
    timestamp: frame.timestamp ?? "",
    source: "environment",
    message: frame.reason,
    observation: "error",
    content: frame.reason,
    extras: { error_id: "", agent_state: "error" },
  };
}

function takeStatus(model: ConversationModel, frame: StatusFrame, at: number): void {
  if (frame.title !== null) {
    if (model.info !== null && frame.message === model.conversationId) {
      model.info = { ...model.info, title: frame.title };
    }
    return;
  }
  if (frame.level === "error") {
    const told = tellsSame({ statusId: frame.id, text: frame.message }, model.agentReason);
    if (model.agentState !== "error" || !told) addModelNotice(model, "error", frame.message, frame.id);
    return;
  }
  if (frame.id === "STATUS$LLM_RETRY") {
    model.retry = frame.message || progressLabel(frame.id);
    return;
  }
  // A failed start is told as an error too; it is no step of the start.
  if (isErrorStatus(frame.id)) return;
  const label = frame.message || progressLabel(frame.id);
  if (label === "" || model.progress.at(-1)?.label === label) return;
  model.progress = [...model.progress, { label, at }].slice(-PROGRESS_LIMIT);
}

function addModelNotice(model: ConversationModel, level: Notice["level"], text: string, statusId: string): void {
  // A server may tell the same as an error and as a status.
  if (model.notices.some((entry) => (text === "" ? entry.statusId === statusId : entry.text === text))) return;
  model.noticeCount += 1;
  const notice = { key: `n${model.noticeCount}`, level, text, statusId };
  model.notices = [...model.notices, notice].slice(-NOTICE_LIMIT);
}

/** Puts older events in front. The timeline is redrawn from all events: the only step that is not O(1). */
function prependHistory(model: ConversationModel, frames: readonly Frame[], hasMore: boolean): void {
  model.older = hasMore ? "more" : "none";
  const events: ConversationEvent[] = [];
  for (const frame of frames) {
    if (frame.kind === "event" && noteId(model, frame.event.id)) events.push(frame.event);
    if (frame.kind === "state" && frame.id !== null && noteId(model, frame.id)) {
      takeHistoricState(model, frame, frame.id);
      if (frame.state === "error") events.push(errorLine(frame));
    }
  }
  events.sort((first, second) => first.id - second.id);
  const known = model.metrics;
  for (const event of events) takeMetrics(model, event);
  model.metrics = known ?? model.metrics;
  if (events.length === 0) return;
  const unnumbered = model.history.filter((event) => event.id === UNNUMBERED);
  const numbered = [...events, ...model.history.filter((event) => event.id !== UNNUMBERED)];
  numbered.sort((first, second) => first.id - second.id);
  model.history = [...numbered, ...unnumbered];
  model.timeline = createTimeline();
  model.prepends += 1;
  for (const event of model.history) addEvent(model.timeline, event);
  for (const event of events) takeEcho(model, event);
}

/** History tells the state only until something newer is known. */
function takeHistoricState(model: ConversationModel, frame: StateFrame, id: number): void {
  if (id < model.agentStateId) return;
  model.agentStateId = id;
  model.agentState = frame.state;
  model.agentReason = frame.reason;
  model.agentStateSince = parseTimestamp(frame.timestamp ?? "") ?? 0;
}
