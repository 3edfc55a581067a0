/** Bodies of the REST routes that the page uses (wire protocol, sections 4.3, 4.6 and 7). */

export type ConversationStatus = "STARTING" | "RUNNING" | "STOPPED" | "ARCHIVED" | "ERROR";

export interface ConversationInfo {
  readonly conversation_id: string;
  readonly title: string;
  readonly status: ConversationStatus;
  readonly runtime_status: string | null;
  readonly created_at: string;
  readonly last_updated_at: string | null;
  readonly selected_repository: string | null;
  readonly selected_branch: string | null;
  readonly session_api_key: string | null;
  readonly url: string | null;
}

export interface ConversationPage {
  readonly results: readonly ConversationInfo[];
  readonly next_page_id: string | null;
}

export interface ConversationCreated {
  readonly conversation_id: string;
  readonly conversation_status: ConversationStatus;
}

/** The repository that a conversation begins with. */
export interface StartingPoint {
  readonly repository: string;
  /** Empty: the repository's own choice. */
  readonly branch: string;
}

export interface EventPage {
  readonly events: readonly unknown[];
  readonly has_more: boolean;
}

/** Own addition to `GET /api/options/config`; absent on other servers. */
export interface DrydockInfo {
  readonly version: string;
  readonly sandbox: { readonly provider: string; readonly reason: string };
  readonly model: string;
  readonly demo: boolean;
  readonly auth_required: boolean;
  /** False where nothing is stored yet: asking for it would only be answered 404. */
  readonly settings_stored: boolean;
}

export interface ServerConfig {
  readonly APP_MODE: string;
  readonly DRYDOCK?: DrydockInfo;
}

/** The fields the page edits; others are carried along untouched. */
export interface Settings {
  readonly llm_model: string | null;
  readonly llm_api_key_set: boolean;
  readonly llm_base_url: string | null;
  readonly confirmation_mode: boolean | null;
  readonly max_iterations: number | null;
  readonly max_budget_per_task: number | null;
  readonly git_user_name: string | null;
  readonly git_user_email: string | null;
  readonly [other: string]: unknown;
}

/** What is shown of a secret. */
export interface SecretName {
  readonly name: string;
  readonly description: string;
}

export interface SettingsChange {
  readonly llm_model?: string;
  readonly llm_api_key?: string;
  readonly llm_base_url?: string;
  readonly confirmation_mode?: boolean;
  readonly max_iterations?: number | null;
  readonly max_budget_per_task?: number | null;
  readonly git_user_name?: string | null;
  readonly git_user_email?: string | null;
}

export const DEMO_MODEL_PREFIX = "demo/";
export const DEMO_MODEL = "demo/tour";
