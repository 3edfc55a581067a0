/** What the conversation is doing, in one word that the whole page agrees on. */
import type { ConversationModel } from "./model";

export type Phase =
  | "opening"
  | "missing"
  | "starting"
  | "waiting"
  | "working"
  | "ready"
  | "finished"
  | "paused"
  | "stopped"
  | "asleep"
  | "confirming"
  | "throttled"
  | "error"
  | "failed"
  | "archived";

export function phaseOf(model: ConversationModel): Phase {
  if (model.infoState === "missing") return "missing";
  const status = model.info?.status;
  if (status === "ARCHIVED") return "archived";
  if (status === "ERROR" && !model.starting) return "failed";
  if (model.waiting !== "") return "waiting";
  if (model.starting) return "starting";
  if (status === undefined && model.connection !== "live") return "opening";
  if (status === "STOPPED" && (model.connection === "idle" || model.connection === "refused")) return "asleep";
  switch (model.agentState) {
    case "loading":
    case "init":
      return "starting";
    case "running":
    case "user_confirmed":
    case "user_rejected":
      return "working";
    case "awaiting_user_input":
      return "ready";
    case "awaiting_user_confirmation":
      return "confirming";
    case "finished":
      return "finished";
    case "paused":
      return "paused";
    case "stopped":
    case "rejected":
      return "stopped";
    case "rate_limited":
      return "throttled";
    case "error":
      return "error";
  }
}

/** True when a message may be handed over now. While the agent starts or asks, it may be written but not sent. */
export function acceptsMessage(phase: Phase): boolean {
  return phase !== "opening" && phase !== "missing" && phase !== "starting" && phase !== "confirming" && phase !== "archived";
}

/** True when the conversation has no session and must be started before it can take a message. */
export function needsStart(phase: Phase): boolean {
  return phase === "asleep" || phase === "failed";
}
