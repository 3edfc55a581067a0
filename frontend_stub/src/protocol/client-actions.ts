/** What the page sends as `oh_user_action`. */
import type { AgentState } from "./events";
import { numberField, objectField, stringField } from "./fields";

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

/** What the server says of an action: the event that it became, or why it is none. */
export type SendAnswer = { readonly id: number } | { readonly refusal: string; readonly passes: boolean };

/** Codes of refusals that last only as long as the server can store nothing. */
const PASSING: ReadonlySet<string> = new Set(["disk_full", "storage_unavailable"]);

/** Null where the answer says nothing: a server of the original protocol gives none. */
export function parseAnswer(payload: unknown): SendAnswer | null {
  const fields = objectField({ payload }, "payload") ?? {};
  if (fields.success === false) {
    return { refusal: stringField(fields, "error") || "The server did not take it.", passes: PASSING.has(stringField(fields, "code")) };
  }
  const id = numberField(fields, "id");
  return id === null ? null : { id };
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
