/** Events and frames as a server sends them. */
import { parseFrame } from "../src/protocol/frames";
import type { Frame } from "../src/protocol/frames";
import { reduce } from "../src/state/conversation";
import { createModel } from "../src/state/model";
import type { ConversationModel, ModelAction } from "../src/state/model";
import type { ConversationInfo } from "../src/protocol/rest";

export const AT = Date.parse("2026-01-01T00:00:10Z");

interface Extra {
  readonly source?: string;
  readonly cause?: number;
  readonly message?: string;
  readonly timestamp?: string;
  readonly [name: string]: unknown;
}

function envelope(id: number, extra: Extra) {
  return { id, timestamp: "2026-01-01T00:00:00.000000Z", source: "agent", message: "", ...extra };
}

export function action(id: number, name: string, args: Record<string, unknown> = {}, extra: Extra = {}) {
  return { ...envelope(id, extra), action: name, args };
}

export function observation(id: number, name: string, content = "", extras: Record<string, unknown> = {}, extra: Extra = {}) {
  return { ...envelope(id, extra), observation: name, content, extras };
}

export function userMessage(id: number, text: string) {
  return action(id, "message", { content: text }, { source: "user", message: text });
}

export function agentMessage(id: number, text: string, extra: Extra = {}) {
  return action(id, "message", { content: text }, { message: text, ...extra });
}

export function run(id: number, command: string, args: Record<string, unknown> = {}, extra: Extra = {}) {
  return action(id, "run", { command, thought: "", ...args }, extra);
}

export function ran(id: number, cause: number, output: string, exitCode = 0) {
  return observation(id, "run", output, { command: "", metadata: { exit_code: exitCode } }, { cause });
}

export function state(id: number | null, agentState: string, reason = "") {
  const bare = { observation: "agent_state_changed", content: "", message: "", extras: { agent_state: agentState, reason } };
  return id === null ? bare : { ...bare, id, timestamp: "2026-01-01T00:00:00Z", source: "environment" };
}

export function frame(payload: unknown): Frame {
  const parsed = parseFrame(payload);
  if (parsed === null) throw new Error(`not a frame: ${JSON.stringify(payload)}`);
  return parsed;
}

export function info(change: Partial<ConversationInfo> = {}): ConversationInfo {
  return {
    conversation_id: "c1",
    title: "A conversation",
    status: "RUNNING",
    runtime_status: "STATUS$READY",
    runtime_warning: null,
    created_at: "2026-01-01T00:00:00Z",
    last_updated_at: null,
    selected_repository: null,
    selected_branch: null,
    session_api_key: null,
    url: null,
    ...change,
  };
}

/** A live conversation that has received these payloads. */
export function liveModel(...payloads: readonly unknown[]): ConversationModel {
  const model = createModel("c1");
  dispatch(model, { type: "info", info: info() }, { type: "connection", connection: "live" });
  receive(model, ...payloads);
  return model;
}

export function dispatch(model: ConversationModel, ...actions: readonly ModelAction[]): void {
  for (const entry of actions) reduce(model, entry);
}

export function receive(model: ConversationModel, ...payloads: readonly unknown[]): void {
  for (const payload of payloads) reduce(model, { type: "frame", frame: frame(payload), at: AT });
}
