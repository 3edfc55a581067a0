/** Events of the log: drawn, counted, matched with what the user sent; and older ones put in front. */
import type { ConversationEvent } from "../protocol/events";
import { isAction } from "../protocol/events";
import { booleanField, stringField } from "../protocol/fields";
import type { Frame } from "../protocol/frames";
import { errorLine, redraw, takeHistoricState, UNNUMBERED } from "./agent-state";
import { noteId } from "./model";
import type { ConversationModel, PendingMessage } from "./model";
import { settle } from "./streams";
import { addEvent } from "./timeline";

export function takeEvent(model: ConversationModel, event: ConversationEvent): void {
  if (!noteId(model, event.id, event.timestamp)) return;
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
  const key = event.idempotency_key;
  const text = (stringField(event.args, "content") || event.message).trim();
  const isEcho = (entry: PendingMessage) =>
    key === undefined ? (entry.state === "sent" || entry.state === "created") && entry.after < event.id && entry.text.trim() === text : entry.key === key;
  const echoed = model.pending.find(isEcho);
  if (echoed !== undefined) model.pending = model.pending.filter((entry) => entry !== echoed);
}

/** Puts older events in front. The timeline is redrawn from all events: the only step that is not O(1). */
export function prependHistory(model: ConversationModel, frames: readonly Frame[], hasMore: boolean): void {
  model.older = hasMore ? "more" : "none";
  const events: ConversationEvent[] = [];
  for (const frame of frames) {
    if (frame.kind === "event" && noteId(model, frame.event.id, frame.event.timestamp)) events.push(frame.event);
    if (frame.kind === "state" && frame.id !== null && noteId(model, frame.id, frame.timestamp)) {
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
  model.prepends += 1;
  redraw(model);
  for (const event of events) takeEcho(model, event);
}
