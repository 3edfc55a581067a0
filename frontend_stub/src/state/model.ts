/** Everything the conversation page knows, and what can happen to it. */
import type { AgentState, ConversationEvent, LlmMetrics } from "../protocol/events";
import type { Delta, Frame } from "../protocol/frames";
import type { ConversationInfo } from "../protocol/rest";
import type { ModelStore } from "./store";
import { createStreams } from "./streams";
import type { Streams } from "./streams";
import { createTimeline } from "./timeline";
import type { Timeline } from "./timeline";

export type Connection = "idle" | "connecting" | "live" | "reconnecting" | "refused";

/** A user's message that the server has not echoed yet. */
export interface PendingMessage {
  /** The one under which it is sent: sent again, it is stored once. */
  readonly key: string;
  readonly text: string;
  /**
   * `held`: waits for a connection or for the agent to be ready. `sent`: on its way. `created`: sent with creation.
   * `refused`: the server did not take it.
   */
  readonly state: "held" | "sent" | "created" | "refused";
  /** Why the server did not take it; what is `held` nonetheless is sent again once the server can store it. */
  readonly refusal?: string;
  /** The newest event id known when it was sent: its echo must be newer. */
  readonly after: number;
}

export interface Notice {
  readonly key: string;
  readonly level: "error" | "info";
  /** A status id, a reason or plain text; explained when drawn. */
  readonly text: string;
  readonly statusId: string;
}

export interface ProgressStep {
  readonly label: string;
  readonly at: number;
}

export interface ConversationModel {
  readonly conversationId: string;
  info: ConversationInfo | null;
  /** `missing`: the server knows no such conversation. */
  infoState: "loading" | "known" | "missing" | "failed";
  connection: Connection;
  refusal: string;
  timeline: Timeline;
  streams: Streams;
  readonly seen: Set<number>;
  /** Drawable events in order, kept to redraw when older history is put in front. */
  history: ConversationEvent[];
  /** Greatest event id received; -1 for none. */
  lastEventId: number;
  lastEventTimestamp: string;
  /** `unknown` until the first page of history is there. */
  older: "unknown" | "more" | "loading" | "none";
  /** How often older history was put in front of the timeline. */
  prepends: number;
  agentState: AgentState;
  agentReason: string;
  /** The newest error status: the state `error` that follows it says the same, with fewer words. */
  failure: Pick<Notice, "statusId" | "text"> | null;
  agentStateSince: number;
  agentStateId: number;
  starting: boolean;
  /** When this page asked for the start; 0 when it did not. */
  startingSince: number;
  progress: readonly ProgressStep[];
  retry: string;
  /** What is wrong with the network of the sandbox that runs, or why it is not started yet. */
  warning: string;
  /** Why the server can store nothing just now, in words; empty when it can. */
  outage: string;
  /** Why the sandbox is frozen, in words: the server's disk is nearly full. Empty when it is not. */
  frozen: string;
  /** Why the start that is wanted does not come about, in words; it is tried again as long as this stands. */
  obstacle: string;
  /** Why work that is wanted does not begin yet, in words; empty when it does. */
  waiting: string;
  metrics: LlmMetrics | null;
  pending: readonly PendingMessage[];
  notices: readonly Notice[];
  noticeCount: number;
}

export type ModelAction =
  | { readonly type: "frame"; readonly frame: Frame; readonly at: number }
  | { readonly type: "delta"; readonly delta: Delta }
  | { readonly type: "history"; readonly events: readonly Frame[]; readonly hasMore: boolean }
  | { readonly type: "older-loading" }
  | { readonly type: "older-failed" }
  | { readonly type: "connection"; readonly connection: Connection; readonly refusal?: string }
  | { readonly type: "info"; readonly info: ConversationInfo }
  | { readonly type: "info-state"; readonly state: "missing" | "failed" }
  | { readonly type: "starting"; readonly starting: boolean; readonly at: number; readonly obstacle?: string }
  | { readonly type: "pending-add"; readonly message: PendingMessage }
  | { readonly type: "pending-sent"; readonly key: string; readonly after: number }
  | { readonly type: "pending-held"; readonly key: string; readonly refusal?: string }
  | { readonly type: "pending-refused"; readonly key: string; readonly refusal: string }
  | { readonly type: "pending-remove"; readonly key: string }
  | { readonly type: "notice"; readonly level: "error" | "info"; readonly text: string; readonly statusId?: string }
  | { readonly type: "notice-dismiss"; readonly key: string };

export type ConversationStore = ModelStore<ConversationModel, ModelAction>;

export function createModel(conversationId: string): ConversationModel {
  return {
    conversationId,
    info: null,
    infoState: "loading",
    connection: "idle",
    refusal: "",
    timeline: createTimeline(),
    streams: createStreams(),
    seen: new Set(),
    history: [],
    lastEventId: -1,
    lastEventTimestamp: "",
    older: "unknown",
    prepends: 0,
    agentState: "loading",
    agentReason: "",
    failure: null,
    agentStateSince: 0,
    agentStateId: -1,
    starting: false,
    startingSince: 0,
    progress: [],
    retry: "",
    warning: "",
    outage: "",
    frozen: "",
    obstacle: "",
    waiting: "",
    metrics: null,
    pending: [],
    notices: [],
    noticeCount: 0,
  };
}

/** Notes an id. False when the event was drawn before: a replay may overlap what the page has. */
export function noteId(model: ConversationModel, id: number, timestamp: string | null): boolean {
  if (model.seen.has(id)) return false;
  model.seen.add(id);
  if (id > model.lastEventId) {
    model.lastEventId = id;
    model.lastEventTimestamp = timestamp ?? "";
  }
  return true;
}
