/**
 * How each happening changes what the conversation page knows.
 *
 * `reduce` changes the model in place and does no I/O; the cost is O(1) per event, whatever the history's length.
 */
import type { Frame } from "../protocol/frames";
import type { ConversationInfo } from "../protocol/rest";
import { FROZEN, isWaiting, progressLabel } from "../protocol/status";
import { endStart, takeState } from "./agent-state";
import { prependHistory, takeEvent } from "./log";
import type { Connection, ConversationModel, ModelAction, PendingMessage } from "./model";
import { addNotice, endTroubles, takeErrorFrame, takeStatus } from "./notices";
import { applyDelta, dropResponses } from "./streams";

export function reduce(model: ConversationModel, action: ModelAction): void {
  switch (action.type) {
    case "frame":
      reduceFrame(model, action.frame, action.at);
      return;
    case "delta":
      applyDelta(model.streams, action.delta);
      if (action.delta.kind !== "output" && action.delta.kind !== "client-call") model.retry = "";
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
      if (!action.starting) model.obstacle = action.obstacle ?? "";
      if (action.starting) model.progress = [];
      return;
    case "pending-add":
      model.pending = [...model.pending, action.message];
      return;
    case "pending-sent":
      changePending(model, action.key, { state: "sent", after: action.after, refusal: "" });
      return;
    case "pending-held":
      changePending(model, action.key, { state: "held", refusal: action.refusal ?? "" });
      return;
    case "pending-refused":
      changePending(model, action.key, { state: "refused", refusal: action.refusal });
      return;
    case "pending-remove":
      model.pending = model.pending.filter((entry) => entry.key !== action.key);
      return;
    case "notice":
      addNotice(model, action.level, action.text, action.statusId ?? "");
      return;
    case "notice-dismiss":
      model.notices = model.notices.filter((entry) => entry.key !== action.key);
  }
}

function takeInfo(model: ConversationModel, info: ConversationInfo): void {
  model.info = info;
  model.infoState = "known";
  const reason = info.runtime_warning ?? "";
  const isFrozen = info.runtime_status === FROZEN;
  model.frozen = isFrozen ? reason : "";
  model.warning = isFrozen ? "" : reason;
  const held = info.runtime_status !== null && isWaiting(info.runtime_status) ? progressLabel(info.runtime_status) : "";
  model.waiting = info.waiting ?? held;
  if (info.status === "STARTING" || info.status === "RUNNING") model.obstacle = "";
  if (info.status === "STARTING") model.starting = true;
  else if (info.status === "ERROR" || info.status === "ARCHIVED") endStart(model);
  else if (info.status === "RUNNING" && model.agentState !== "loading") endStart(model);
}

function changePending(model: ConversationModel, key: string, change: Partial<PendingMessage>): void {
  // Why it was not taken stands at the message itself.
  if (change.refusal) model.notices = model.notices.filter((entry) => entry.text !== change.refusal);
  model.pending = model.pending.map((entry) => (entry.key === key ? { ...entry, ...change } : entry));
}

function setConnection(model: ConversationModel, connection: Connection, refusal: string): void {
  model.connection = connection;
  model.refusal = refusal;
  // Where it lasts it is told again.
  if (connection === "live") endTroubles(model);
  // What was said while we were away is not sent again as deltas, so half a sentence would stay half.
  if (connection === "reconnecting" || connection === "idle") {
    dropResponses(model.streams);
    model.streams.output.clear();
    model.streams.deadlines.clear();
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
      takeErrorFrame(model, frame.message);
  }
}
