/** Bodies of the REST routes that the page uses. */

import type {
  ConversationInfo as SentConversation,
  ConversationReply,
  DockerHostInfo,
  DrydockFacts,
  EventsPage,
  McpSignIn,
  PublicSettings,
  SecretName as SentSecretName,
  SettingsChange as TakenSettings,
} from "./generated/rest";

export type ConversationStatus = SentConversation["status"];

export type ConversationInfo = Pick<
  SentConversation,
  | "conversation_id"
  | "title"
  | "status"
  | "runtime_status"
  | "runtime_warning"
  | "created_at"
  | "last_updated_at"
  | "selected_repository"
  | "selected_branch"
  | "session_api_key"
  | "url"
> & {
  /** What may be done with it; absent on other servers, where it is one's own. */
  readonly access?: SentConversation["access"];
  /** Why its work does not begin yet, in words. */
  readonly waiting?: string | null;
};

export interface ConversationPage {
  readonly results: readonly ConversationInfo[];
  readonly next_page_id: string | null;
}

export type ConversationCreated = Pick<ConversationReply, "conversation_id" | "conversation_status">;

/** The repository that a conversation begins with. */
export interface StartingPoint {
  readonly repository: string;
  /** Empty: the repository's own choice. */
  readonly branch: string;
}

/** Events are checked one by one: a later server may have types that are not known here. */
export type EventPage = Pick<EventsPage, "has_more"> & { readonly events: readonly unknown[] };

/** Own addition to `GET /api/options/config`; absent on other servers. */
export type DrydockInfo = DrydockFacts;

export interface ServerConfig {
  readonly APP_MODE: string;
  readonly DRYDOCK?: DrydockInfo;
}

type Edited =
  | "llm_model"
  | "llm_base_url"
  | "confirmation_mode"
  | "security_analyzer"
  | "max_iterations"
  | "max_budget_per_task"
  | "git_user_name"
  | "git_user_email";

/** The fields the page edits; others are carried along untouched. */
export type Settings = Pick<PublicSettings, Edited | "llm_api_key_set"> & Readonly<Record<string, unknown>>;

/** What is shown of a secret. */
export type SecretName = SentSecretName;
export type { McpSignIn };
export type DockerHost = DockerHostInfo;

export type SettingsChange = Pick<TakenSettings, Edited | "llm_api_key">;

export const DEMO_MODEL_PREFIX = "demo/";
export const DEMO_MODEL = "demo/tour";
