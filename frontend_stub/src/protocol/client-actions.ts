/** What the page sends as `oh_user_action` (wire protocol 2.1). */
import type { AgentState } from "./events";

export interface ClientAction {
  readonly action: string;
  readonly args: Readonly<Record<string, unknown>>;
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

/** Agreement to what waits and, in this conversation, to all that would wait later. */
export function lastingApproval(): ClientAction {
  return { action: "change_agent_state", args: { agent_state: "user_confirmed", remember: true } };
}
