/**
 * Text that is still being written: model responses and command output (`oh_delta`).
 *
 * It is shown after the history and dropped as soon as the final event says the same in full.
 */
import type { ConversationEvent } from "../protocol/events";
import { isAction } from "../protocol/events";
import type { Delta } from "../protocol/frames";

export interface ResponseStream {
  readonly responseId: string;
  readonly text: string;
  readonly reasoning: string;
}

export interface Streams {
  responses: readonly ResponseStream[];
  /** Live output of commands by the id of their action. */
  readonly output: Map<number, string>;
  /** Until when a client has time for a call that it carries out, by the id of the action. */
  readonly deadlines: Map<number, string>;
  /** Responses whose final event has come: a late delta of theirs is ignored. */
  readonly finished: Set<string>;
}

/** Live output is only a window on the running command; the observation brings what is kept. */
export const LIVE_OUTPUT_LIMIT = 60_000;
const FINISHED_LIMIT = 64;

export function createStreams(): Streams {
  return { responses: [], output: new Map(), deadlines: new Map(), finished: new Set() };
}

export function applyDelta(streams: Streams, delta: Delta): void {
  switch (delta.kind) {
    case "output": {
      const text = (streams.output.get(delta.cause) ?? "") + delta.text;
      // Cut only when it has grown well past the limit, so that long output does not copy on every chunk.
      streams.output.set(
        delta.cause,
        text.length > 2 * LIVE_OUTPUT_LIMIT ? text.slice(-LIVE_OUTPUT_LIMIT) : text,
      );
      return;
    }
    case "client-call":
      if (delta.deadline === "") streams.deadlines.delete(delta.cause);
      else streams.deadlines.set(delta.cause, delta.deadline);
      return;
    case "discard":
      streams.responses = streams.responses.filter((entry) => entry.responseId !== delta.response_id);
      return;
    case "message":
    case "reasoning":
      appendText(streams, delta.response_id, delta.kind, delta.text);
  }
}

function appendText(streams: Streams, responseId: string, part: "message" | "reasoning", text: string): void {
  if (streams.finished.has(responseId)) return;
  const known = streams.responses.find((entry) => entry.responseId === responseId);
  const before = known ?? { responseId, text: "", reasoning: "" };
  const after =
    part === "message" ? { ...before, text: before.text + text } : { ...before, reasoning: before.reasoning + text };
  streams.responses =
    known === undefined
      ? [...streams.responses, after]
      : streams.responses.map((entry) => (entry === known ? after : entry));
}

/** Drops what a stored event makes final. */
export function settle(streams: Streams, event: ConversationEvent): void {
  if (!isAction(event)) {
    if (event.cause !== undefined) {
      streams.output.delete(event.cause);
      streams.deadlines.delete(event.cause);
    }
    return;
  }
  if (event.source !== "agent" || event.action === "system" || streams.responses.length === 0) {
    rememberFinished(streams, responseIdOf(event));
    return;
  }
  const responseId = responseIdOf(event);
  const alreadyFinished = responseId !== null && streams.finished.has(responseId);
  rememberFinished(streams, responseId);
  // The second tool call of one response must not take away the next response's text.
  if (alreadyFinished) return;
  const position = streams.responses.findIndex((entry) => entry.responseId === responseId);
  const settled = position === -1 ? streams.responses : streams.responses.slice(0, position + 1);
  for (const entry of settled) rememberFinished(streams, entry.responseId);
  streams.responses = streams.responses.slice(settled.length);
}

function responseIdOf(event: ConversationEvent): string | null {
  const id = event.tool_call_metadata?.model_response?.id;
  if (typeof id === "string" && id !== "") return id;
  const usage = event.llm_metrics?.accumulated_token_usage?.response_id;
  return typeof usage === "string" && usage !== "" ? usage : null;
}

function rememberFinished(streams: Streams, responseId: string | null): void {
  if (responseId === null) return;
  streams.finished.add(responseId);
  if (streams.finished.size <= FINISHED_LIMIT) return;
  const [oldest] = streams.finished;
  if (oldest !== undefined) streams.finished.delete(oldest);
}

/** Forgets unfinished responses: the agent was stopped, or the connection has a hole. */
export function dropResponses(streams: Streams): void {
  streams.responses = [];
}
