/** What the page sends as `oh_user_action` (wire protocol 2.1). */
import type { AgentState } from "./events";

export interface ClientAction {
  readonly action: string;
  readonly args: Readonly<Record<string, unknown>>;
  /** Under the same key the same is stored once, however often it is sent. Not part of the original protocol. */
  readonly idempotency_key?: string;
}

export function messageAction(content: string, now: Date = new Date()): ClientAction {
  return {
    action: "message",
    args: { content, image_urls: [], file_urls: [], timestamp: now.toISOString() },
  };
}

export type RequestedState = Extract<
  AgentState,
  "running" | "paused" | "stopped" | "user_confirmed" | "user_rejected"
>;

export function stateAction(state: RequestedState): ClientAction {
  return { action: "change_agent_state", args: { agent_state: state } };
}

/** The same action under a key. */
export function keyed(action: ClientAction, key: string): ClientAction {
  return { ...action, idempotency_key: key };
}

/** Agreement to what waits and, in this conversation, to all that would wait later. */
export function lastingApproval(): ClientAction {
  return { action: "change_agent_state", args: { agent_state: "user_confirmed", remember: true } };
}
