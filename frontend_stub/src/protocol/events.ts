/** Events as the server sends them in `oh_event` and in `GET {c}/events` (wire protocol, section 3). */

export type EventSource = "agent" | "user" | "environment";

export type ConfirmationState = "confirmed" | "rejected" | "awaiting_confirmation";

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
] as const;

export type AgentState = (typeof AGENT_STATES)[number];

export interface TokenUsage {
  model?: string;
  prompt_tokens?: number;
  completion_tokens?: number;
  cache_read_tokens?: number;
  cache_write_tokens?: number;
  context_window?: number;
  per_turn_token?: number;
  response_id?: string;
}

export interface LlmMetrics {
  accumulated_cost?: number;
  max_budget_per_task?: number | null;
  accumulated_token_usage?: TokenUsage | null;
}

export interface ToolCallMetadata {
  function_name?: string;
  tool_call_id?: string;
  model_response?: { id?: string } | null;
  total_calls_in_response?: number;
}

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

export interface TaskItem {
  readonly id: string;
  readonly title: string;
  readonly status: string;
  readonly notes: string;
}
