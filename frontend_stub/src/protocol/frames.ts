/** Everything that may arrive on the socket, and its recognition. */
import { numberField, objectField, stringField } from "./fields";
import type { AgentState, ConversationEvent, Envelope, Fields, ToolCallMetadata, LlmMetrics } from "./events";
import { AGENT_STATES } from "./events";
import type { AnyDelta } from "./generated/events";

export interface StatusFrame {
  readonly kind: "status";
  readonly level: "info" | "error";
  readonly id: string;
  readonly message: string;
  /** Set when the frame announces a new title; `message` is then the conversation's id. */
  readonly title: string | null;
}

export interface ErrorFrame {
  readonly kind: "error";
  readonly message: string;
}

export interface EventFrame {
  readonly kind: "event";
  readonly event: ConversationEvent;
}

/** A state observation, with or without the envelope of a stored event. */
export interface StateFrame {
  readonly kind: "state";
  readonly id: number | null;
  readonly timestamp: string | null;
  readonly state: AgentState;
  readonly reason: string;
  /** The reason in words for people; empty where the server tells none. Not part of the original protocol. */
  readonly detail: string;
}

export type Frame = StatusFrame | ErrorFrame | EventFrame | StateFrame;

/** What is transient, until a final event says more: `oh_delta`, and `oh_tool_call`. Not part of the original protocol. */
export type Delta =
  | AnyDelta
  /** A client is to carry out this call until then, a time; empty when nobody waits for it any more. */
  | { readonly kind: "client-call"; readonly cause: number; readonly deadline: string };

function isAgentState(value: string): value is AgentState {
  return (AGENT_STATES as readonly string[]).includes(value);
}

function asObject(value: unknown): Fields | null {
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : null;
}

function parseEvent(raw: Fields): ConversationEvent | null {
  const id = numberField(raw, "id");
  if (id === null || !Number.isInteger(id) || id < 0) return null;
  const source = stringField(raw, "source");
  const cause = numberField(raw, "cause");
  const toolCall = objectField(raw, "tool_call_metadata") as ToolCallMetadata | null;
  const metrics = objectField(raw, "llm_metrics") as LlmMetrics | null;
  const envelope: Envelope = {
    id,
    timestamp: stringField(raw, "timestamp"),
    source: source === "user" || source === "environment" ? source : "agent",
    message: stringField(raw, "message"),
    ...(cause === null ? {} : { cause }),
    ...(toolCall === null ? {} : { tool_call_metadata: toolCall }),
    ...(metrics === null ? {} : { llm_metrics: metrics }),
    ...(typeof raw.idempotency_key === "string" ? { idempotency_key: raw.idempotency_key } : {}),
  };
  if (typeof raw.action === "string") {
    const timeout = numberField(raw, "timeout");
    return {
      ...envelope,
      action: raw.action,
      args: objectField(raw, "args") ?? {},
      ...(timeout === null ? {} : { timeout }),
    };
  }
  if (typeof raw.observation === "string") {
    return {
      ...envelope,
      observation: raw.observation,
      content: stringField(raw, "content"),
      extras: objectField(raw, "extras") ?? {},
      ...(typeof raw.success === "boolean" ? { success: raw.success } : {}),
    };
  }
  return null;
}

/** Recognises one `oh_event` payload. Returns null for what no known shape fits: it is ignored. */
export function parseFrame(value: unknown): Frame | null {
  const raw = asObject(value);
  if (raw === null) return null;
  if (raw.status_update === true) {
    return {
      kind: "status",
      level: raw.type === "error" ? "error" : "info",
      id: stringField(raw, "id"),
      message: stringField(raw, "message"),
      title: typeof raw.conversation_title === "string" ? raw.conversation_title : null,
    };
  }
  if (raw.error === true) return { kind: "error", message: stringField(raw, "message") };
  if (raw.observation === "agent_state_changed") {
    const extras = objectField(raw, "extras") ?? {};
    const state = stringField(extras, "agent_state");
    if (!isAgentState(state)) return null;
    return {
      kind: "state",
      id: numberField(raw, "id"),
      timestamp: typeof raw.timestamp === "string" ? raw.timestamp : null,
      state,
      reason: stringField(extras, "reason"),
      detail: stringField(extras, "detail"),
    };
  }
  const event = parseEvent(raw);
  return event === null ? null : { kind: "event", event };
}

/** The event id of a frame, or -1 for a frame that is no stored event. */
export function frameId(frame: Frame | null): number {
  if (frame?.kind === "event") return frame.event.id;
  return frame?.kind === "state" ? (frame.id ?? -1) : -1;
}

export function parseDelta(value: unknown): Delta | null {
  const raw = asObject(value);
  if (raw === null) return null;
  const text = stringField(raw, "text");
  switch (raw.kind) {
    case "message":
    case "reasoning":
      return { kind: raw.kind, response_id: stringField(raw, "response_id"), text };
    case "discard":
      return { kind: "discard", response_id: stringField(raw, "response_id") };
    case "output": {
      const cause = numberField(raw, "cause");
      return cause === null ? null : { kind: "output", cause, text };
    }
    default:
      return null;
  }
}

/** Recognises one `oh_tool_call` payload: a call that one of the connected clients is to carry out. */
export function parseToolCall(value: unknown): Delta | null {
  const raw = asObject(value);
  const cause = raw === null ? null : numberField(raw, "call_id");
  if (raw === null || cause === null) return null;
  return { kind: "client-call", cause, deadline: raw.is_over === true ? "" : stringField(raw, "deadline") };
}
