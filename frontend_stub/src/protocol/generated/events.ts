/** What goes over the socket. Made by `make page-types` from the promised form of the protocol; not edited by hand. */

export interface AccumulatedTokenUsage {
  readonly cache_read_tokens: number;
  readonly cache_write_tokens: number;
  readonly completion_tokens: number;
  readonly context_window: number;
  readonly model: string;
  readonly per_turn_token: number;
  readonly prompt_tokens: number;
  readonly response_id: string;
}

export interface LlmMetrics {
  readonly accumulated_cost: number;
  readonly accumulated_token_usage: AccumulatedTokenUsage;
  readonly costs: readonly unknown[];
  readonly max_budget_per_task: number | null;
  readonly response_latencies: readonly unknown[];
  readonly token_usages: readonly unknown[];
}

export interface MicroagentKnowledge {
  readonly content: string;
  readonly name: string;
  readonly trigger: string;
}

export interface ToolCallMetadata {
  readonly function_name: string;
  readonly model_response: Readonly<Record<string, unknown>>;
  readonly tool_call_id: string;
  readonly total_calls_in_response: number;
}

export interface DeltaDiscard {
  readonly kind: "discard";
  readonly response_id: string;
}

export interface DeltaOutput {
  readonly cause: number;
  readonly kind: "output";
  readonly text: string;
}

export interface DeltaText {
  readonly kind: "message" | "reasoning";
  readonly response_id: string;
  readonly text: string;
}

export interface BrowseAction {
  readonly action: "browse";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly return_axtree: boolean;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly thought: string;
    readonly url: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface BrowseInteractiveAction {
  readonly action: "browse_interactive";
  readonly args: {
    readonly browser_actions: string;
    readonly browsergym_send_msg_to_user: string;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly return_axtree: boolean;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface CallToolMcpAction {
  readonly action: "call_tool_mcp";
  readonly args: {
    readonly arguments: Readonly<Record<string, unknown>>;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly name: string;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface ChangeAgentStateAction {
  readonly action: "change_agent_state";
  readonly args: {
    readonly agent_state: string;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly remember?: boolean;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface CondensationAction {
  readonly action: "condensation";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly forgotten_event_ids: readonly number[] | null;
    readonly forgotten_events_end_id: number | null;
    readonly forgotten_events_start_id: number | null;
    readonly summary: string | null;
    readonly summary_offset: number | null;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface CondensationRequestAction {
  readonly action: "condensation_request";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface DelegateAction {
  readonly action: "delegate";
  readonly args: {
    readonly agent: string;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly inputs: Readonly<Record<string, unknown>>;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface EditAction {
  readonly action: "edit";
  readonly args: {
    readonly command: string;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly content: string;
    readonly end: number;
    readonly file_text: string | null;
    readonly impl_source: "llm_based_edit" | "oh_aci";
    readonly insert_line: number | null;
    readonly new_str: string | null;
    readonly old_str: string | null;
    readonly path: string;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly start: number;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface FinishAction {
  readonly action: "finish";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly final_thought: string;
    readonly outputs: Readonly<Record<string, unknown>>;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface LoopRecoveryAction {
  readonly action: "loop_recovery";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly option: 1 | 2 | 3;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface MessageAction {
  readonly action: "message";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly content: string;
    readonly file_urls: readonly string[] | null;
    readonly image_urls: readonly string[] | null;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly thought?: string;
    readonly wait_for_response: boolean;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface ReadAction {
  readonly action: "read";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly end: number;
    readonly impl_source: "default" | "oh_aci";
    readonly path: string;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly start: number;
    readonly thought: string;
    readonly view_range: readonly number[] | null;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface RecallAction {
  readonly action: "recall";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly query: string;
    readonly recall_type: "workspace_context" | "knowledge";
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface RejectAction {
  readonly action: "reject";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly outputs: Readonly<Record<string, unknown>>;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface RewindAction {
  readonly action: "rewind";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly forked_from?: string;
    readonly note: string;
    readonly thought: string;
    readonly to: number | null;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface RunAction {
  readonly action: "run";
  readonly args: {
    readonly blocking: boolean;
    readonly command: string;
    readonly confirmation_state: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly cwd: string | null;
    readonly hidden: boolean;
    readonly is_input: boolean;
    readonly is_static: boolean;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly terminal?: string;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface RunIpythonAction {
  readonly action: "run_ipython";
  readonly args: {
    readonly code: string;
    readonly confirmation_state: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly include_extra: boolean;
    readonly kernel_init_code: string;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface SystemAction {
  readonly action: "system";
  readonly args: {
    readonly agent_class: string | null;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly content: string;
    readonly openhands_version: string | null;
    readonly tools: readonly (Readonly<Record<string, unknown>>)[] | null;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface TaskTrackingAction {
  readonly action: "task_tracking";
  readonly args: {
    readonly command: "view" | "plan";
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly task_list: readonly ({
      readonly id: string;
      readonly notes: string;
      readonly status: "todo" | "in_progress" | "done";
      readonly title: string;
    })[];
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface ThinkAction {
  readonly action: "think";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface WriteAction {
  readonly action: "write";
  readonly args: {
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly content: string;
    readonly end: number;
    readonly path: string;
    readonly security_risk: -1 | 0 | 1 | 2;
    readonly start: number;
    readonly thought: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: LlmMetrics;
  readonly message: string;
  readonly source: "agent" | "user" | "environment";
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: ToolCallMetadata;
}

export interface EventClosed {
  readonly content: "";
  readonly extras: {
    readonly agent_state: "stopped";
    readonly reason: "";
  };
  readonly message: "";
  readonly observation: "agent_state_changed";
}

export interface EventError {
  readonly code?: string;
  readonly docs?: string;
  readonly error: true;
  readonly message: string;
}

export interface AgentStateChangedObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly agent_state: "loading" | "running" | "awaiting_user_input" | "paused" | "stopped" | "finished" | "rejected" | "error" | "awaiting_user_confirmation" | "user_confirmed" | "user_rejected" | "rate_limited";
    readonly detail?: string;
    readonly reason: string;
  };
  readonly id?: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "agent_state_changed";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface BrowseObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly active_page_index: number;
    readonly axtree_object: Readonly<Record<string, unknown>>;
    readonly dom_object: Readonly<Record<string, unknown>>;
    readonly error: boolean;
    readonly extra_element_properties: Readonly<Record<string, unknown>>;
    readonly filter_visible_only: boolean;
    readonly focused_element_bid: string;
    readonly goal_image_urls: readonly string[];
    readonly last_browser_action: string;
    readonly last_browser_action_error: string;
    readonly open_pages_urls: readonly string[];
    readonly screenshot: string;
    readonly screenshot_path: string | null;
    readonly set_of_marks: string;
    readonly trigger_by_action: string;
    readonly url: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "browse";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface CondenseObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: Readonly<Record<string, never>>;
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "condense";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface DelegateObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly outputs: Readonly<Record<string, unknown>>;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "delegate";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface DownloadObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly file_path: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "download";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface EditObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly _diff_cache: string | null;
    readonly diff: string | null;
    readonly impl_source: "llm_based_edit" | "oh_aci";
    readonly new_content: string | null;
    readonly old_content: string | null;
    readonly path: string;
    readonly prev_exist: boolean;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "edit";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface ErrorObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly error_id: string;
    readonly sign_in?: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "error";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface LoopDetectionObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: Readonly<Record<string, never>>;
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "loop_detection";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface McpObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly arguments: Readonly<Record<string, unknown>>;
    readonly name: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "mcp";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface ReadObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly image_urls?: readonly string[];
    readonly impl_source: "default" | "oh_aci";
    readonly path: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "read";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface RecallObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly additional_agent_instructions: string;
    readonly conversation_instructions: string;
    readonly custom_secrets_descriptions: Readonly<Record<string, string>>;
    readonly date: string;
    readonly microagent_knowledge: readonly MicroagentKnowledge[];
    readonly recall_type: "workspace_context" | "knowledge";
    readonly repo_branch: string;
    readonly repo_directory: string;
    readonly repo_instructions: string;
    readonly repo_name: string;
    readonly runtime_hosts: Readonly<Record<string, number>>;
    readonly working_dir: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "recall";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface RewindObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly files_of: number | null;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "rewind";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface RunObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly command: string;
    readonly hidden: boolean;
    readonly metadata: {
      readonly exit_code: number;
      readonly hostname: string | null;
      readonly pid: number;
      readonly prefix: string;
      readonly py_interpreter_path: string | null;
      readonly suffix: string;
      readonly username: string | null;
      readonly working_dir: string | null;
    };
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "run";
  readonly source: "agent" | "user" | "environment";
  readonly success: boolean;
  readonly timestamp: string;
}

export interface RunIpythonObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly code: string;
    readonly image_urls: readonly string[] | null;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "run_ipython";
  readonly source: "agent" | "user" | "environment";
  readonly success: boolean;
  readonly timestamp: string;
}

export interface SuccessObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: Readonly<Record<string, never>>;
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "success";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface TaskTrackingObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly command: string;
    readonly task_list: readonly ({
      readonly id: string;
      readonly notes: string;
      readonly status: "todo" | "in_progress" | "done";
      readonly title: string;
    })[];
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "task_tracking";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface ThinkObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: Readonly<Record<string, never>>;
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "think";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface UserRejectedObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: Readonly<Record<string, never>>;
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "user_rejected";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface WriteObservation {
  readonly cause?: number;
  readonly content: string;
  readonly extras: {
    readonly path: string;
  };
  readonly id: number;
  readonly idempotency_key?: string;
  readonly message: string;
  readonly observation: "write";
  readonly source: "agent" | "user" | "environment";
  readonly timestamp: string;
}

export interface EventStatus {
  readonly code?: string;
  readonly docs?: string;
  readonly id: string;
  readonly message: string;
  readonly source?: "environment";
  readonly status_update: true;
  readonly timestamp?: string;
  readonly type: "info" | "error";
}

export interface EventTitle {
  readonly conversation_title: string;
  readonly message: string;
  readonly status_update: true;
  readonly type: "info";
}

export interface Resync {
  readonly end_id: number;
  readonly latest_event_id: number;
  readonly reason: "too_far_behind" | "unknown_position";
  readonly start_id: number;
}

export interface ToolCallDue {
  readonly arguments: Readonly<Record<string, unknown>>;
  readonly call_id: number;
  readonly deadline: string | null;
  readonly is_over: false;
  readonly name: string;
}

export interface ToolCallOver {
  readonly call_id: number;
  readonly is_over: true;
  readonly name: string;
}

export interface SendBrowse {
  readonly action: "browse";
  readonly args: {
    readonly return_axtree?: boolean;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly thought?: string;
    readonly url: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendBrowseInteractive {
  readonly action: "browse_interactive";
  readonly args: {
    readonly browser_actions: string;
    readonly browsergym_send_msg_to_user?: string;
    readonly return_axtree?: boolean;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendChangeAgentState {
  readonly action: "change_agent_state";
  readonly args: {
    readonly agent_state: string;
    readonly remember?: boolean;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendClientToolResult {
  readonly action: "client_tool_result";
  readonly args: {
    readonly call_id: number;
    readonly content: string | readonly ({
      readonly text: string;
      readonly type: "text";
    } | {
      readonly data: string;
      readonly mimeType: string;
      readonly type: "image";
    })[];
    readonly is_error?: boolean;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendCondensation {
  readonly action: "condensation";
  readonly args?: {
    readonly forgotten_event_ids?: readonly number[] | null;
    readonly forgotten_events_end_id?: number | null;
    readonly forgotten_events_start_id?: number | null;
    readonly summary?: string | null;
    readonly summary_offset?: number | null;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendCondensationRequest {
  readonly action: "condensation_request";
  readonly args?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendEdit {
  readonly action: "edit";
  readonly args: {
    readonly command?: string;
    readonly content?: string;
    readonly end?: number;
    readonly file_text?: string | null;
    readonly impl_source?: "llm_based_edit" | "oh_aci";
    readonly insert_line?: number | null;
    readonly new_str?: string | null;
    readonly old_str?: string | null;
    readonly path: string;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly start?: number;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendFinish {
  readonly action: "finish";
  readonly args?: {
    readonly final_thought?: string;
    readonly outputs?: Readonly<Record<string, unknown>>;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendLoopRecovery {
  readonly action: "loop_recovery";
  readonly args?: {
    readonly option?: 1 | 2 | 3;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendMessage {
  readonly action: "message";
  readonly args: {
    readonly content: string;
    readonly file_urls?: readonly string[] | null;
    readonly image_urls?: readonly string[] | null;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly wait_for_response?: boolean;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendNull {
  readonly action: "null";
  readonly args?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendRead {
  readonly action: "read";
  readonly args: {
    readonly end?: number;
    readonly impl_source?: "default" | "oh_aci";
    readonly path: string;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly start?: number;
    readonly thought?: string;
    readonly view_range?: readonly number[] | null;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendRecall {
  readonly action: "recall";
  readonly args: {
    readonly query?: string;
    readonly recall_type: "workspace_context" | "knowledge";
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendReject {
  readonly action: "reject";
  readonly args?: {
    readonly outputs?: Readonly<Record<string, unknown>>;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendRewind {
  readonly action: "rewind";
  readonly args: {
    readonly to: number | null;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendRun {
  readonly action: "run";
  readonly args: {
    readonly blocking?: boolean;
    readonly command: string;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly cwd?: string | null;
    readonly hidden?: boolean;
    readonly is_input?: boolean;
    readonly is_static?: boolean;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendRunIpython {
  readonly action: "run_ipython";
  readonly args: {
    readonly code: string;
    readonly confirmation_state?: "confirmed" | "rejected" | "awaiting_confirmation";
    readonly include_extra?: boolean;
    readonly kernel_init_code?: string;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendSystem {
  readonly action: "system";
  readonly args: {
    readonly agent_class?: string | null;
    readonly content: string;
    readonly openhands_version?: string | null;
    readonly tools?: readonly (Readonly<Record<string, unknown>>)[] | null;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendTaskTracking {
  readonly action: "task_tracking";
  readonly args?: {
    readonly command?: "view" | "plan";
    readonly task_list?: readonly ({
      readonly id: string;
      readonly notes?: string;
      readonly status?: "todo" | "in_progress" | "done";
      readonly title: string;
    })[];
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendThink {
  readonly action: "think";
  readonly args?: {
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendWrite {
  readonly action: "write";
  readonly args: {
    readonly content: string;
    readonly end?: number;
    readonly path: string;
    readonly security_risk?: -1 | 0 | 1 | 2;
    readonly start?: number;
    readonly thought?: string;
  };
  readonly idempotency_key?: string | null;
  readonly timeout?: number | null;
}

export interface SendObservationBrowse {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras: {
    readonly active_page_index?: number;
    readonly axtree_object?: Readonly<Record<string, unknown>>;
    readonly dom_object?: Readonly<Record<string, unknown>>;
    readonly error?: boolean;
    readonly extra_element_properties?: Readonly<Record<string, unknown>>;
    readonly filter_visible_only?: boolean;
    readonly focused_element_bid?: string;
    readonly goal_image_urls?: readonly string[];
    readonly last_browser_action?: string;
    readonly last_browser_action_error?: string;
    readonly open_pages_urls?: readonly string[];
    readonly screenshot?: string;
    readonly screenshot_path?: string | null;
    readonly set_of_marks?: string;
    readonly trigger_by_action: string;
    readonly url: string;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "browse";
}

export interface SendObservationCondense {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly observation: "condense";
}

export interface SendObservationDelegate {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: {
    readonly outputs?: Readonly<Record<string, unknown>>;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "delegate";
}

export interface SendObservationDownload {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras: {
    readonly file_path: string;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "download";
}

export interface SendObservationEdit {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: {
    readonly _diff_cache?: string | null;
    readonly diff?: string | null;
    readonly impl_source?: "llm_based_edit" | "oh_aci";
    readonly new_content?: string | null;
    readonly old_content?: string | null;
    readonly path?: string;
    readonly prev_exist?: boolean;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "edit";
}

export interface SendObservationError {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: {
    readonly error_id?: string;
    readonly sign_in?: string;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "error";
}

export interface SendObservationLoopDetection {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly observation: "loop_detection";
}

export interface SendObservationMcp {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: {
    readonly arguments?: Readonly<Record<string, unknown>>;
    readonly name?: string;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "mcp";
}

export interface SendObservationNull {
  readonly cause?: number | null;
  readonly content?: string;
  readonly extras?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly observation: "null";
}

export interface SendObservationRead {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras: {
    readonly image_urls?: readonly string[];
    readonly impl_source?: "default" | "oh_aci";
    readonly path: string;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "read";
}

export interface SendObservationRecall {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras: {
    readonly additional_agent_instructions?: string;
    readonly conversation_instructions?: string;
    readonly custom_secrets_descriptions?: Readonly<Record<string, string>>;
    readonly date?: string;
    readonly microagent_knowledge?: readonly MicroagentKnowledge[];
    readonly recall_type: "workspace_context" | "knowledge";
    readonly repo_branch?: string;
    readonly repo_directory?: string;
    readonly repo_instructions?: string;
    readonly repo_name?: string;
    readonly runtime_hosts?: Readonly<Record<string, number>>;
    readonly working_dir?: string;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "recall";
}

export interface SendObservationRun {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras: {
    readonly command: string;
    readonly hidden?: boolean;
    readonly metadata?: {
      readonly exit_code?: number;
      readonly hostname?: string | null;
      readonly pid?: number;
      readonly prefix?: string;
      readonly py_interpreter_path?: string | null;
      readonly suffix?: string;
      readonly username?: string | null;
      readonly working_dir?: string | null;
    };
  };
  readonly idempotency_key?: string | null;
  readonly observation: "run";
}

export interface SendObservationRunIpython {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras: {
    readonly code: string;
    readonly image_urls?: readonly string[] | null;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "run_ipython";
}

export interface SendObservationSuccess {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly observation: "success";
}

export interface SendObservationTaskTracking {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: {
    readonly command?: string;
    readonly task_list?: readonly ({
      readonly id: string;
      readonly notes?: string;
      readonly status?: "todo" | "in_progress" | "done";
      readonly title: string;
    })[];
  };
  readonly idempotency_key?: string | null;
  readonly observation: "task_tracking";
}

export interface SendObservationThink {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly observation: "think";
}

export interface SendObservationUserRejected {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras?: Readonly<Record<string, never>>;
  readonly idempotency_key?: string | null;
  readonly observation: "user_rejected";
}

export interface SendObservationWrite {
  readonly cause?: number | null;
  readonly content: string;
  readonly extras: {
    readonly path: string;
  };
  readonly idempotency_key?: string | null;
  readonly observation: "write";
}

export type AnyAction =
  | BrowseAction
  | BrowseInteractiveAction
  | CallToolMcpAction
  | ChangeAgentStateAction
  | CondensationAction
  | CondensationRequestAction
  | DelegateAction
  | EditAction
  | FinishAction
  | LoopRecoveryAction
  | MessageAction
  | ReadAction
  | RecallAction
  | RejectAction
  | RewindAction
  | RunAction
  | RunIpythonAction
  | SystemAction
  | TaskTrackingAction
  | ThinkAction
  | WriteAction;

export type AnyObservation =
  | AgentStateChangedObservation
  | BrowseObservation
  | CondenseObservation
  | DelegateObservation
  | DownloadObservation
  | EditObservation
  | ErrorObservation
  | LoopDetectionObservation
  | McpObservation
  | ReadObservation
  | RecallObservation
  | RewindObservation
  | RunObservation
  | RunIpythonObservation
  | SuccessObservation
  | TaskTrackingObservation
  | ThinkObservation
  | UserRejectedObservation
  | WriteObservation;

export type AnyDelta =
  | DeltaDiscard
  | DeltaOutput
  | DeltaText;

export type AnySend =
  | SendBrowse
  | SendBrowseInteractive
  | SendChangeAgentState
  | SendClientToolResult
  | SendCondensation
  | SendCondensationRequest
  | SendEdit
  | SendFinish
  | SendLoopRecovery
  | SendMessage
  | SendNull
  | SendRead
  | SendRecall
  | SendReject
  | SendRewind
  | SendRun
  | SendRunIpython
  | SendSystem
  | SendTaskTracking
  | SendThink
  | SendWrite
  | SendObservationBrowse
  | SendObservationCondense
  | SendObservationDelegate
  | SendObservationDownload
  | SendObservationEdit
  | SendObservationError
  | SendObservationLoopDetection
  | SendObservationMcp
  | SendObservationNull
  | SendObservationRead
  | SendObservationRecall
  | SendObservationRun
  | SendObservationRunIpython
  | SendObservationSuccess
  | SendObservationTaskTracking
  | SendObservationThink
  | SendObservationUserRejected
  | SendObservationWrite;
