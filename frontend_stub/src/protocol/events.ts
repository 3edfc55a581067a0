/** Events as the server sends them in `oh_event` and in `GET {c}/events`. */

import type {
  AccumulatedTokenUsage,
  AgentStateChangedObservation,
  AnyAction,
  LlmMetrics as SentMetrics,
  RunAction,
  TaskTrackingAction,
  ToolCallMetadata as SentMetadata,
} from "./generated/events";

export type EventSource = AnyAction["source"];

export type ConfirmationState = RunAction["args"]["confirmation_state"];

/** The states of the protocol, and the one that only clients know. */
export type AgentState = AgentStateChangedObservation["extras"]["agent_state"] | "init";

/** Values of `security_risk`: -1 unknown, 0 low, 1 medium, 2 high. */
export const HIGH_RISK = 2;

export const AGENT_STATES = [
  "loading",
  "init",
  "running",
  "awaiting_user_input",
  "paused",
  "stopped",
  "finished",
  "rejected",
  "error",
  "awaiting_user_confirmation",
  "user_confirmed",
  "user_rejected",
  "rate_limited",
] as const satisfies readonly AgentState[];

// What follows is read from servers that may leave any of it out.

export type TokenUsage = Partial<AccumulatedTokenUsage>;

export type LlmMetrics = Partial<Omit<SentMetrics, "accumulated_token_usage">> & {
  readonly accumulated_token_usage?: TokenUsage | null;
};

export type ToolCallMetadata = Partial<SentMetadata>;

/** Type-specific fields are read one by one through `fields.ts`: no server is trusted to send them all. */
export type Fields = Readonly<Record<string, unknown>>;

export interface Envelope {
  readonly id: number;
  readonly timestamp: string;
  readonly source: EventSource;
  readonly message: string;
  readonly cause?: number;
  readonly tool_call_metadata?: ToolCallMetadata;
  readonly llm_metrics?: LlmMetrics;
  /** The key under which a client sent it. */
  readonly idempotency_key?: string;
}

export interface ActionEvent extends Envelope {
  readonly action: string;
  readonly args: Fields;
  readonly timeout?: number;
}

export interface ObservationEvent extends Envelope {
  readonly observation: string;
  readonly content: string;
  readonly extras: Fields;
  readonly success?: boolean;
}

export type ConversationEvent = ActionEvent | ObservationEvent;

export function isAction(event: ConversationEvent): event is ActionEvent {
  return "action" in event;
}

/** An entry of a plan; its status may be one of a later version. */
export type TaskItem = Omit<TaskTrackingAction["args"]["task_list"][number], "status"> & { readonly status: string };
