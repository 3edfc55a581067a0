/** What the REST routes take and answer. Made by `make page-types` from the promised form of the protocol; not edited by hand. */

/** What somebody may do with a conversation. */
export type Access = "read" | "write" | "owner";

/** Who is signed in. */
export interface AccountFacts {
  readonly name: string;
  readonly role: Role;
}

/** The body of a new event. */
export interface AddedEvent {
  readonly event: Readonly<Record<string, unknown>>;
}

/** A kind of sub-agent. Unknown names in a file's header are passed over; None means what the asking agent has. */
export interface AgentDefinition {
  readonly color?: string | null;
  readonly condenser?: "default" | "none" | Readonly<Record<string, unknown>>;
  readonly description?: string;
  readonly examples?: readonly string[];
  readonly hooks?: Readonly<Record<string, unknown>> | null;
  readonly instructions?: string;
  readonly level?: "programmatic" | "plugin" | "project" | "user" | "built-in";
  readonly max_budget_per_run?: number | null;
  readonly max_iteration_per_run?: number | null;
  readonly mcp_config?: Readonly<Record<string, unknown>>;
  readonly model?: string;
  readonly name: string;
  readonly permission_mode?: "always_confirm" | "never_confirm" | "confirm_risky" | null;
  readonly profile_store_dir?: string | null;
  readonly skills?: readonly string[];
  readonly source?: string | null;
  readonly tools?: readonly string[] | null;
}

/** A question to an agent, for at most `max_iterations` steps with the conversation's tools, or those of `tools`. */
export interface AgentHook {
  readonly max_iterations?: number;
  readonly name?: string | null;
  readonly prompt: string;
  readonly timeout?: number;
  readonly tools?: readonly string[];
  readonly type?: "agent";
}

/** Choices about an agent; what is None is left as it is: to whoever chose before, and in the end to the agent. */
export interface AgentOptions {
  readonly cli_mode?: boolean | null;
  readonly condenser?: Readonly<Record<string, unknown>> | null;
  readonly critic?: Readonly<Record<string, unknown>> | null;
  readonly disabled_microagents?: readonly string[] | null;
  readonly draft_editor_model?: string | null;
  readonly enable_browsing?: boolean | null;
  readonly enable_cmd?: boolean | null;
  readonly enable_condensation_request?: boolean | null;
  readonly enable_editor?: boolean | null;
  readonly enable_finish?: boolean | null;
  readonly enable_history_truncation?: boolean | null;
  readonly enable_jupyter?: boolean | null;
  readonly enable_llm_editor?: boolean | null;
  readonly enable_mcp?: boolean | null;
  readonly enable_memory?: boolean | null;
  readonly enable_plan_mode?: boolean | null;
  readonly enable_prompt_extensions?: boolean | null;
  readonly enable_som_visual_browsing?: boolean | null;
  readonly enable_sub_agents?: boolean | null;
  readonly enable_think?: boolean | null;
  readonly filter_tools_regex?: string | null;
  readonly include_default_tools?: readonly string[] | null;
  readonly preset?: string | null;
  readonly security_policy_filename?: string | null;
  readonly system_prompt?: string | null;
  readonly system_prompt_filename?: string | null;
  readonly system_prompt_kwargs?: Readonly<Record<string, JsonValue>> | null;
  readonly tool_concurrency_limit?: number | null;
  readonly tools?: readonly Tool[] | null;
}

/** The tools that an agent at work has, with those of MCP servers. */
export interface AgentTools {
  readonly tools: readonly (Readonly<Record<string, unknown>>)[];
}

/** The process answers. */
export interface Alive {
  readonly status: "ok";
}

/** What the agent says. */
export interface Answer {
  readonly content: string;
  readonly reasoning_content?: string;
  readonly refusal: null;
  readonly role: "assistant";
}

/** Who did something. */
export interface AuditActor {
  readonly id: string;
  readonly name: string;
}

/** Records, the newest first. */
export interface AuditPage {
  readonly is_broken: boolean;
  readonly next_page_id: string | null;
  readonly results: readonly AuditRecordInfo[];
}

/** One record. What its hash is of, and how to check that, is in docs/audit.md. */
export interface AuditRecordInfo {
  readonly action: string;
  readonly actor: AuditActor;
  readonly address: string;
  readonly at: string;
  readonly details: Readonly<Record<string, unknown>>;
  readonly hash: string;
  readonly means: string;
  readonly number: number;
  readonly previous: string;
  readonly target: AuditTarget;
}

/** With what it was done. */
export interface AuditTarget {
  readonly id: string;
  readonly kind: string;
}

/** Where a branch left the one it began from. */
export interface Base {
  readonly commit: string;
  readonly name: string;
}

/** A branch and its newest commit. */
export interface Branch {
  readonly commit_sha: string;
  readonly last_push_date?: string | null;
  readonly name: string;
  readonly protected: boolean;
}

/** A page of branches. */
export interface BranchesPage {
  readonly branches: readonly Branch[];
  readonly current_page: number;
  readonly has_next_page: boolean;
  readonly per_page: number;
  readonly total_count: number | null;
}

/** A file that was changed: modified, added, deleted, or in conflict. */
export interface Change {
  readonly path: string;
  readonly status: "M" | "A" | "D" | "U";
}

/** A message of the chat's history. */
export interface ChatMessage {
  readonly content?: string | readonly Part[] | null;
  readonly role: "system" | "developer" | "user" | "assistant" | "tool" | "function";
}

/** The body of ``POST /v1/chat/completions``. */
export interface ChatRequest {
  readonly audio?: unknown;
  readonly conversation_id?: string | null;
  readonly functions?: unknown;
  readonly logprobs?: unknown;
  readonly messages: readonly ChatMessage[];
  readonly metadata?: Readonly<Record<string, string>> | null;
  readonly model: "drydock";
  readonly n?: 1 | null;
  readonly response_format?: unknown;
  readonly safety_identifier?: unknown;
  readonly stream?: boolean | null;
  readonly stream_options?: StreamOptions | null;
  readonly tools?: unknown;
  readonly user?: unknown;
}

/** The one answer. */
export interface Choice {
  readonly finish_reason: "stop";
  readonly index: number;
  readonly logprobs: null;
  readonly message: Answer;
}

/** What a client needs to know before anything else. */
export interface ClientConfig {
  readonly APP_MODE: "oss";
  readonly DRYDOCK: DrydockFacts;
  readonly FEATURE_FLAGS: FeatureFlags;
  readonly GITHUB_CLIENT_ID: string;
  readonly POSTHOG_CLIENT_KEY: string;
}

/** One tool: what the model is told of it, and how long its client may take. */
export interface ClientToolSpec {
  readonly annotations?: ToolAnnotations;
  readonly description: string;
  readonly name: string;
  readonly parameters?: Readonly<Record<string, unknown>>;
  readonly timeout?: number | null;
}

/** The tools that clients of a conversation carry out. */
export interface ClientToolsReply {
  readonly client_tools: readonly (Readonly<Record<string, unknown>>)[];
}

/** A shell command that gets a `HookInput` on its standard input; with `async` nobody waits, and it cannot block. */
export interface CommandHook {
  readonly async?: boolean;
  readonly command: string;
  readonly name?: string | null;
  readonly timeout?: number;
  readonly type?: "command";
}

/** A commit. */
export interface Commit {
  readonly author: string;
  readonly body: string;
  readonly date: string;
  readonly email: string;
  readonly hash: string;
  readonly parents: readonly string[];
  readonly refs: readonly string[];
  readonly subject: string;
}

/** An answer in one piece. */
export interface Completion {
  readonly choices: readonly Choice[];
  readonly conversation_id: string;
  readonly created: number;
  readonly id: string;
  readonly model: string;
  readonly object: "chat.completion";
  readonly usage: Usage;
}

/** It is done. */
export interface Confirmation {
  readonly message: string;
}

/** Ids that the original's client asks for. */
export interface ConversationConfig {
  readonly runtime_id: string | null;
  readonly session_id: string | null;
}

/** What is known of a conversation, the same in lists and alone. */
export interface ConversationInfo {
  readonly access: Access;
  readonly accumulated_cost: number;
  readonly agent_state: string | null;
  readonly conversation_id: string;
  readonly conversation_version: "V0";
  readonly created_at: string;
  readonly git_provider: string | null;
  readonly last_updated_at: string | null;
  readonly num_connections: number;
  readonly pr_number: readonly number[];
  readonly runtime_status: string | null;
  readonly runtime_warning: string | null;
  readonly selected_branch: string | null;
  readonly selected_repository: string | null;
  readonly session_api_key: string | null;
  readonly status: ConversationStatus;
  readonly sub_conversation_ids: readonly string[];
  readonly title: string;
  readonly trigger: string | null;
  readonly url: string | null;
  readonly waiting: Waiting | null;
}

/** A page of conversations, newest first. */
export interface ConversationList {
  readonly next_page_id: string | null;
  readonly results: readonly ConversationInfo[];
}

/** What became of a conversation that was made, started or stopped. */
export interface ConversationReply {
  readonly conversation_id: string;
  readonly conversation_status: ConversationStatus;
  readonly message: string | null;
  readonly status: "ok";
}

/** What clients are told about a conversation. */
export type ConversationStatus = "STARTING" | "RUNNING" | "STOPPED" | "ARCHIVED" | "ERROR";

/** The client's wish for a microagent; what it is to be is said in the first message. */
export interface CreateMicroagent {
  readonly git_provider?: "github" | "gitlab" | "bitbucket" | "enterprise_sso" | "azure_devops" | "forgejo" | null;
  readonly repo: string;
  readonly title?: string | null;
}

/** A new webhook; its secret is shown only here. */
export interface CreatedWebhook {
  readonly active: boolean;
  readonly conversation_id: string | null;
  readonly created_at: string;
  readonly delivered_at: string | null;
  readonly events: readonly string[];
  readonly failing_since: string | null;
  readonly id: string;
  readonly problem: string;
  readonly secret: string;
  readonly url: string;
}

/** A file as it is, and as it was; empty where it is not there. */
export interface Diff {
  readonly modified: string;
  readonly original: string;
}

/** Bytes of the disk with the data. */
export interface Disk {
  readonly free: number;
  readonly percent: number;
  readonly total: number;
  readonly used: number;
}

/** One Docker host, as it is known to be; memory in bytes, 0 where it was never reached. */
export interface DockerHostInfo {
  readonly has_image: boolean;
  readonly max_sandboxes: number;
  readonly memory: number;
  readonly memory_free: number;
  readonly name: string;
  readonly processors: number;
  readonly reason: string | null;
  readonly sandboxes: number;
  readonly since: string;
  readonly status: "up" | "draining" | "lost";
  readonly url: string;
  readonly version: string;
}

/** The Docker hosts of a server, in the order of its configuration. */
export interface DockerHostList {
  readonly results: readonly DockerHostInfo[];
}

/** It is stored. */
export interface Done {
  readonly success: true;
}

/** Whether a host is to take no new sandboxes. */
export interface DrainChange {
  readonly draining: boolean;
}

/** What our own page asks. */
export interface DrydockFacts {
  readonly account: AccountFacts | null;
  readonly auth_required: boolean;
  readonly demo: boolean;
  readonly guest: boolean;
  readonly model: string;
  readonly sandbox: SandboxChoice;
  readonly settings_stored: boolean;
  readonly version: string;
}

/** Where a browser sees the workspace; null: nowhere. */
export interface EditorAddress {
  readonly vscode_url: string | null;
}

/** An error. The original's routes differ in which field has the text: `detail`, `error` or `message`. */
export interface ErrorReply {
  readonly code?: string;
  readonly conversation_id?: string;
  readonly detail?: string | readonly Problem[];
  readonly docs?: string;
  readonly error?: string;
  readonly message?: string;
  readonly msg_id?: string;
  readonly status?: string;
  readonly success?: boolean;
}

/** The body of ``GET …/events``; all that is named has to hold. */
export interface EventFilter {
  readonly end_date?: string | null;
  readonly exclude_hidden?: boolean;
  readonly query?: string | null;
  readonly source?: "agent" | "user" | "environment" | null;
  readonly start_date?: string | null;
}

/** A part of the log. */
export interface EventsPage {
  readonly events: readonly WireEvent[];
  readonly has_more: boolean;
  readonly next_page_id: string | null;
}

/** The body; without a ``config`` there is nothing to note. */
export interface ExperimentConfig {
  readonly config?: Readonly<Record<string, string>> | null;
}

/** Parts of the original's client that are switched on. */
export interface FeatureFlags {
  readonly ENABLE_BILLING: boolean;
  readonly HIDE_LLM_SETTINGS: boolean;
}

/** What was said of a conversation. */
export interface FeedbackEntry {
  readonly conversation_id: string;
  readonly created_at: string;
  readonly email: string;
  readonly feedback_id: string;
  readonly last_event_id: number;
  readonly permissions: "public" | "private";
  readonly polarity: "positive" | "negative";
  readonly version: string;
}

/** A page of it, newest first. */
export interface FeedbackList {
  readonly next_page_id: string | null;
  readonly results: readonly FeedbackEntry[];
}

/** It is kept. */
export interface FeedbackReply {
  readonly body: Receipt;
  readonly statusCode?: 200;
}

/** The text of a file. */
export interface FileText {
  readonly code: string;
}

/** A folder of the workspace. */
export interface Folder {
  readonly entries: readonly FolderEntry[];
  readonly left_out: number;
  readonly next_page_id: string | null;
  readonly path: string;
  readonly root: string;
}

/** What is in a folder; a link that leads nowhere is `missing`. */
export interface FolderEntry {
  readonly hidden: boolean;
  readonly kind: "file" | "folder" | "missing" | "other";
  readonly link: boolean;
  readonly modified: number | null;
  readonly name: string;
  readonly size: number | null;
}

/** The new conversation of a fork. */
export interface ForkReply {
  readonly conversation_id: string;
  readonly conversation_status: ConversationStatus;
  readonly forked_from: string;
  readonly message: string | null;
  readonly status: "ok";
}

/** The body of ``POST …/fork``; without ``event_id`` the fork has the whole log, without a profile the same. */
export interface ForkWish {
  readonly conversation_id?: string | null;
  readonly copy_files?: boolean;
  readonly event_id?: number | null;
  readonly llm_profile?: string | null;
  readonly program?: ProgramSettings | null;
  readonly reset_metrics?: boolean;
}

/** The repositories of the workspace. */
export interface GitStatus {
  readonly errors: readonly string[];
  readonly folder: string;
  readonly repositories: readonly RepositoryStatus[];
}

/** The body. Other fields of the original's client, such as an empty ``trajectory``, are passed over. */
export interface GivenFeedback {
  readonly email?: string;
  readonly permissions?: "public" | "private";
  readonly polarity: "positive" | "negative";
  readonly version?: string;
}

/** A token and where it is for; what is empty stays as it is stored. */
export interface GivenToken {
  readonly host?: string | null;
  readonly token?: string | null;
}

/** The body of ``POST /api/add-git-providers``. */
export interface GivenTokens {
  readonly provider_tokens: Readonly<Record<string, GivenToken>>;
}

/** The newest commits first. */
export interface History {
  readonly commits: readonly Commit[];
  readonly has_more: boolean;
  readonly next_page_id: string | null;
}

/** All hooks of a conversation, by event; as data the events may also stand alone, without the key `hooks`. */
export interface HookConfig {
  readonly hooks?: Readonly<Record<string, readonly HookMatcher[]>>;
}

/** When hooks are run. */
export type HookEvent = "PreToolUse" | "PostToolUse" | "UserPromptSubmit" | "SessionStart" | "SessionEnd" | "Stop";

/** Hooks for the tools that `matcher` names. */
export interface HookMatcher {
  readonly hooks?: readonly (CommandHook | PromptHook | AgentHook)[];
  readonly matcher?: string;
}

/** An image of a result, in base64. */
export interface ImageBlock {
  readonly data: string;
  readonly mimeType: string;
  readonly type: "image";
}

/** Where an image is; a ``data:`` URL has it whole. */
export interface ImageUrl {
  readonly url: string;
}

export type JsonValue = unknown;

/** A model and every option of it, or a router over other profiles. */
export interface LLMProfile {
  readonly api_key?: string | null;
  readonly api_mode?: "auto" | "chat" | "responses";
  readonly api_version?: string | null;
  readonly auth_type?: "api_key" | "subscription";
  readonly aws_access_key_id?: string | null;
  readonly aws_bedrock_runtime_endpoint?: string | null;
  readonly aws_profile_name?: string | null;
  readonly aws_region_name?: string | null;
  readonly aws_role_name?: string | null;
  readonly aws_secret_access_key?: string | null;
  readonly aws_session_name?: string | null;
  readonly aws_session_token?: string | null;
  readonly base_url?: string | null;
  readonly caching_prompt?: boolean;
  readonly capability_overrides?: Readonly<Record<string, boolean | string>>;
  readonly custom_tokenizer?: string | null;
  readonly disable_stop_word?: boolean;
  readonly disable_vision?: boolean | null;
  readonly drop_params?: boolean;
  readonly enable_encrypted_reasoning?: boolean;
  readonly extended_thinking_budget?: number | null;
  readonly extra_headers?: Readonly<Record<string, string>> | null;
  readonly fallbacks?: readonly string[];
  readonly force_string_serializer?: boolean | null;
  readonly inline_image_urls?: boolean | null;
  readonly input_cost_per_token?: number | null;
  readonly litellm_extra_body?: Readonly<Record<string, unknown>>;
  readonly log_completions?: boolean;
  readonly log_completions_folder?: string;
  readonly max_input_tokens?: number | null;
  readonly max_message_chars?: number;
  readonly max_output_tokens?: number | null;
  readonly model?: string;
  readonly model_canonical_name?: string | null;
  readonly models?: Readonly<Record<string, string>>;
  readonly modify_params?: boolean;
  readonly native_tool_calling?: boolean;
  readonly num_retries?: number;
  readonly ollama_base_url?: string | null;
  readonly openrouter_app_name?: string;
  readonly openrouter_site_url?: string;
  readonly output_cost_per_token?: number | null;
  readonly prompt_cache_retention?: string | null;
  readonly reasoning_effort?: "none" | "minimal" | "low" | "medium" | "high" | "xhigh" | null;
  readonly reasoning_summary?: "auto" | "concise" | "detailed" | null;
  readonly record_to?: string | null;
  readonly request_metadata?: readonly ("session_id" | "trace_user_id" | "trace_version" | "tags")[];
  readonly retry_max_wait?: number;
  readonly retry_min_wait?: number;
  readonly retry_multiplier?: number;
  readonly router?: string | null;
  readonly seed?: number | null;
  readonly temperature?: number | null;
  readonly timeout?: number;
  readonly top_k?: number | null;
  readonly top_p?: number | null;
}

/** A port that a program listens on; what cannot be seen of it is null. */
export interface ListeningPort {
  readonly addresses: readonly string[];
  readonly command: string | null;
  readonly pid: number | null;
  readonly port: number;
  readonly process: string | null;
  readonly url: string;
}

/** A skill: always told (`repo`), or when something brings it up (`knowledge`). */
export interface LoadedMicroagent {
  readonly content: string;
  readonly inputs: readonly MicroagentInput[];
  readonly name: string;
  readonly tools: readonly string[];
  readonly triggers: readonly string[];
  readonly type: "repo" | "knowledge";
}

/** All of them. */
export interface LoadedMicroagents {
  readonly microagents: readonly LoadedMicroagent[];
}

/** A part of the log. */
export interface LogPage {
  readonly events: readonly (Readonly<Record<string, unknown>>)[];
  readonly last_id: number;
}

/** The MCP servers of a user, of a conversation, or of the whole server. */
export interface McpConfig {
  readonly shttp_servers?: readonly ShttpServer[];
  readonly sse_servers?: readonly SseServer[];
  readonly stdio_servers?: readonly StdioServer[];
}

/** A client that was registered by hand where an MCP server's users sign in; `scope` has the rights to ask for. */
export interface McpOAuthClient {
  readonly client_id: string;
  readonly client_secret?: string | null;
  readonly scope?: string | null;
}

/** Where a user has signed in, or may. */
export interface McpSignIn {
  readonly id: string;
  readonly scope: string | null;
  readonly server: string;
  readonly state: "signed_in" | "wanted" | "unknown";
}

/** A user's sign-ins. */
export interface McpSignInList {
  readonly results: readonly McpSignIn[];
}

/** Bytes of memory, and the share of the machine's. */
export interface Memory {
  readonly percent: number;
  readonly rss: number;
  readonly vms: number;
}

/** A microagent: its text without the header, and the words that call it. */
export interface Microagent {
  readonly content: string;
  readonly git_provider: string | null;
  readonly path: string;
  readonly triggers: readonly string[];
}

/** A microagent in a list; `created_at` is the time of the answer, since providers know no other without asking. */
export interface MicroagentEntry {
  readonly created_at: string;
  readonly name: string;
  readonly path: string;
}

/** Something that a task asks its user for. */
export interface MicroagentInput {
  readonly description: string;
  readonly name: string;
}

/** A model of this door. */
export interface Model {
  readonly created: number;
  readonly id: string;
  readonly object: "model";
  readonly owned_by: string;
}

/** All of them. */
export interface ModelList {
  readonly data: readonly Model[];
  readonly object: "list";
}

/** The body of ``POST /api/conversations``; unknown keys are refused. */
export interface NewConversation {
  readonly agent_options?: AgentOptions | null;
  readonly client_tools?: readonly ClientToolSpec[] | null;
  readonly confirmation_mode?: boolean | null;
  readonly conversation_id?: string | null;
  readonly conversation_instructions?: string | null;
  readonly create_microagent?: CreateMicroagent | null;
  readonly git_provider?: "github" | "gitlab" | "bitbucket" | "enterprise_sso" | "azure_devops" | "forgejo" | null;
  readonly image_urls?: readonly string[] | null;
  readonly initial_user_msg?: string | null;
  readonly llm_profile?: string | null;
  readonly max_budget_per_task?: number | null;
  readonly max_iterations?: number | null;
  readonly mcp_config?: McpConfig | null;
  readonly program?: ProgramSettings | null;
  readonly replay_json?: string | null;
  readonly repository?: string | null;
  readonly sandbox?: SandboxOptions | null;
  readonly selected_branch?: string | null;
  readonly suggested_task?: SuggestedTaskInput | null;
}

/** The body of ``POST …/message``. */
export interface NewMessage {
  readonly message: string;
}

/** The body of ``POST /api/notes``. Secrets of the user are hidden in what is stored. */
export interface NewNote {
  readonly content: string;
  readonly repository?: string;
  readonly title: string;
}

/** The body of ``POST /api/plugins``. */
export interface NewPlugin {
  readonly path?: string;
  readonly ref?: string;
  readonly source: string;
}

/** The body of ``POST /api/secrets``. */
export interface NewSecret {
  readonly description?: string | null;
  readonly name: string;
  readonly value: string;
}

/** A share, and what is told once. */
export interface NewShare {
  readonly access: "read" | "write";
  readonly expires_at: string | null;
  readonly path: string;
  readonly share_id: string;
  readonly token: string | null;
}

/** The body of a creation. */
export interface NewWebhook {
  readonly conversation_id?: string | null;
  readonly events?: readonly string[];
  readonly secret?: string | null;
  readonly url: string;
}

/** A page of conversations of the second generation that are being started. */
export interface NoTasks {
  readonly items?: readonly null[];
  readonly next_page_id?: null;
}

/** The body of ``PATCH /api/notes/{id}``: what is left out, or null, stays as it is. */
export interface NoteChange {
  readonly content?: string | null;
  readonly repository?: string | null;
  readonly title?: string | null;
  readonly version?: number | null;
}

/** A note as it is kept. */
export interface NoteEntry {
  readonly content: string;
  readonly conversation_id: string | null;
  readonly created_at: string;
  readonly id: string;
  readonly repository: string;
  readonly title: string;
  readonly updated_at: string;
  readonly version: number;
}

/** A page of notes, newest first; of a search those that fit best, on one page. */
export interface NoteList {
  readonly next_page_id: string | null;
  readonly results: readonly NoteEntry[];
}

/** An error of the routes for OpenAI's clients. */
export interface OpenAIError {
  readonly error: OpenAIProblem;
}

/** What OpenAI's clients read of an error. */
export interface OpenAIProblem {
  readonly code: string | null;
  readonly docs?: string;
  readonly message: string;
  readonly param: string | null;
  readonly type: string;
}

/** What a link leads to. */
export interface OpenedShare {
  readonly access: "read" | "write";
  readonly conversation_id: string;
}

/** A skill: always told (`repo`), when a word brings it up (`knowledge`), or when a file is touched (`path`). */
export interface OwnSkill {
  readonly content: string | null;
  readonly description: string;
  readonly enabled: boolean;
  readonly mcp_servers: readonly string[];
  readonly name: string;
  readonly problem: string | null;
  readonly triggers: readonly string[];
  readonly type: "repo" | "knowledge" | "path" | "agentskills" | null;
  readonly warnings: readonly string[];
}

/** A user's skills. */
export interface OwnSkills {
  readonly skills: readonly OwnSkill[];
}

/** A part of a message's content. */
export interface Part {
  readonly image_url?: ImageUrl | null;
  readonly refusal?: string;
  readonly text?: string;
  readonly type: "text" | "image_url" | "refusal";
}

/** What an update has changed; the commits are the same where there was nothing new. */
export interface PluginChange {
  readonly new_commit: string;
  readonly old_commit: string;
  readonly plugin: PluginEntry;
}

/** An installed plugin, and what it brings. */
export interface PluginEntry {
  readonly agents: readonly string[];
  readonly commit: string;
  readonly description: string;
  readonly enabled: boolean;
  readonly for_all: boolean;
  readonly hooks: readonly string[];
  readonly installed_at: string;
  readonly mcp_servers: readonly string[];
  readonly name: string;
  readonly path: string;
  readonly problems: readonly string[];
  readonly ref: string;
  readonly skills: readonly string[];
  readonly source: string;
  readonly version: string;
}

/** A user's plugins, behind those that are there for all. */
export interface PluginList {
  readonly plugins: readonly PluginEntry[];
}

/** The body of ``PATCH /api/plugins/{name}``. */
export interface PluginSwitch {
  readonly enabled: boolean;
}

/** The body of ``POST /api/plugins/{name}/update``. */
export interface PluginUpdateWish {
  readonly ref?: string | null;
}

/** The ports of a sandbox. */
export interface Ports {
  readonly mode: "origin" | "path";
  readonly ports: readonly ListeningPort[];
  readonly running: boolean;
}

/** What is wrong with one part of a request, and what to send instead. */
export interface Problem {
  readonly loc: readonly (string | number)[];
  readonly msg: string;
  readonly type: string;
}

/** Which profile a conversation has; null for none of its own. */
export interface ProfileChoice {
  readonly llm_profile: string | null;
}

/** A profile as its user sees it: no secret, but a mask in the place of each. */
export interface ProfileInfo {
  readonly is_default: boolean;
  readonly may_change: boolean;
  readonly model: string;
  readonly name: string;
  readonly options: Readonly<Record<string, unknown>>;
  readonly owner: "server" | "user";
  readonly problem: string;
}

/** The profiles that the user can name, by name, or a page of them. */
export interface ProfileList {
  readonly default: string | null;
  readonly may_add: boolean;
  readonly next_page_id: string | null;
  readonly results: readonly ProfileInfo[];
}

/** What became of one short question to the model. */
export interface ProfileTest {
  readonly answer: string;
  readonly kind: "key" | "address" | "model" | "limit" | "time" | "other" | null;
  readonly model: string;
  readonly ok: boolean;
  readonly problem: string;
  readonly seconds: number;
}

/** What git does in the workspace: see `agent_core.GitSetup`. */
export interface ProgramGit {
  readonly organization?: ProgramRepository | null;
  readonly repository?: ProgramRepository | null;
  readonly user_email?: string;
  readonly user_name?: string;
}

/** A repository: see `agent_core.Repository`. */
export interface ProgramRepository {
  readonly branch?: string;
  readonly depth?: number;
  readonly limit_seconds?: number;
  readonly name: string;
  readonly problem?: string;
  readonly setup_seconds?: number;
  readonly token?: string | null;
  readonly url: string;
  readonly username?: string;
}

/** A value for the commands that name it. */
export interface ProgramSecret {
  readonly description?: string;
  readonly value: string;
}

/** All that `agent_core.Conversation` is given, as data; the conversation has it instead of its user's settings. */
export interface ProgramSettings {
  readonly agent: {
    readonly kind: string;
    readonly llm: Readonly<Record<string, unknown>>;
    readonly tools?: readonly unknown[];
  };
  readonly agent_definitions?: readonly AgentDefinition[];
  readonly git?: ProgramGit;
  readonly hook_config?: HookConfig;
  readonly max_budget_per_run?: number | null;
  readonly max_iteration_per_run?: number;
  readonly secrets?: Readonly<Record<string, ProgramSecret>>;
  readonly security_analyzer?: Readonly<Record<string, unknown>> | null;
  readonly stuck_detection?: boolean;
  readonly stuck_detection_thresholds?: StuckDetectionThresholds;
}

/** A question to the model, in one call. */
export interface PromptHook {
  readonly name?: string | null;
  readonly prompt: string;
  readonly timeout?: number;
  readonly type?: "prompt";
}

/** What is stored; null where the server's own default counts. */
export interface PublicSettings {
  readonly agent: string | null;
  readonly agent_options: Readonly<Record<string, unknown>> | null;
  readonly condenser_max_size: number | null;
  readonly confirmation_mode: boolean | null;
  readonly disabled_plugins: readonly string[] | null;
  readonly disabled_skills: readonly string[] | null;
  readonly email: string | null;
  readonly email_verified: boolean | null;
  readonly enable_default_condenser: boolean;
  readonly enable_proactive_conversation_starters: boolean;
  readonly enable_solvability_analysis: boolean;
  readonly enable_sound_notifications: boolean;
  readonly git_user_email: string | null;
  readonly git_user_name: string | null;
  readonly language: string | null;
  readonly llm_agents: Readonly<Record<string, string>> | null;
  readonly llm_api_key: null;
  readonly llm_api_key_set: boolean;
  readonly llm_base_url: string | null;
  readonly llm_model: string | null;
  readonly llm_profile: string | null;
  readonly llm_purposes: Readonly<Record<string, string>> | null;
  readonly load_org_skills: boolean | null;
  readonly load_project_skills: boolean | null;
  readonly load_public_skills: boolean | null;
  readonly max_budget_per_task: number | null;
  readonly max_iterations: number | null;
  readonly mcp_config: Readonly<Record<string, unknown>> | null;
  readonly provider_tokens_set: Readonly<Record<string, string | null>>;
  readonly remote_runtime_resource_factor: number | null;
  readonly runtime_extra_deps: string | null;
  readonly runtime_startup_env_vars: Readonly<Record<string, string>> | null;
  readonly sandbox_api_key: null;
  readonly sandbox_base_container_image: string | null;
  readonly sandbox_runtime_container_image: string | null;
  readonly search_api_key: null;
  readonly search_api_key_set: boolean;
  readonly secrets_store: SecretsStore;
  readonly security_analyzer: string | null;
  readonly system_message_suffix: string | null;
  readonly user_consents_to_analytics: boolean | null;
  readonly user_message_suffix: string | null;
  readonly v1_enabled: boolean;
}

/** Whether the server takes new work, or since when (UTC) and why it does not. */
export interface Readiness {
  readonly reason: string | null;
  readonly since: string | null;
  readonly status: "ok" | "refusing";
}

/** Under which id it is kept. The original's collector gives a password for taking it back; here there is none. */
export interface Receipt {
  readonly feedback_id: string;
  readonly message: string;
  readonly password: string;
}

/** The proposal. */
export interface RememberPrompt {
  readonly prompt: string;
  readonly status?: "success";
}

/** The body of a replay. */
export interface Replay {
  readonly after_event_id: number;
  readonly conversation_id: string;
}

/** A repository; `link_header` is the same on all of one page and says whether there is another. */
export interface Repository {
  readonly full_name: string;
  readonly git_provider: "github" | "gitlab" | "bitbucket" | "enterprise_sso" | "azure_devops" | "forgejo";
  readonly id: string;
  readonly is_public: boolean;
  readonly link_header?: string | null;
  readonly main_branch?: string | null;
  readonly owner_type?: "user" | "organization" | null;
  readonly pushed_at?: string | null;
  readonly stargazers_count?: number | null;
}

/** A repository of the workspace. */
export interface RepositoryStatus {
  readonly ahead: number;
  readonly base: Base | null;
  readonly behind: number;
  readonly branch: string | null;
  readonly changes: readonly Change[];
  readonly head: string | null;
  readonly is_cut: boolean;
  readonly left_out: number;
  readonly path: string;
  readonly upstream: string | null;
}

/** What the process uses. */
export interface Resources {
  readonly cpu_percent: number;
  readonly disk: Disk;
  readonly io: Transferred;
  readonly memory: Memory;
}

/** What a client answers: a text, or blocks as MCP has them. */
export interface ResultArgs {
  readonly content: string | readonly (TextBlock | ImageBlock)[];
  readonly is_error?: boolean;
}

/** Where a conversation goes on. */
export interface RewindReply {
  readonly conversation_id: string;
  readonly event_id: number | null;
  readonly files_of?: number | null;
  readonly id: number;
  readonly note?: string;
  readonly status: "ok";
}

/** The body of ``POST …/rewind``; ``event_id`` null goes before the first event. */
export interface RewindWish {
  readonly event_id: number | null;
}

/** What a user is on this server. */
export type Role = "administrator" | "user" | "viewer";

/** Where conversations run, and why there. */
export interface SandboxChoice {
  readonly provider: string;
  readonly reason: string;
}

/** Why a request came to nothing: its arguments (`tool`), the sandbox, or (`lost`) nobody knows whether it did. */
export interface SandboxFailure {
  readonly code?: string;
  readonly fix?: string;
  readonly kind: "tool" | "sandbox" | "lost";
  readonly message: string;
}

/** What a request chooses of its conversation's sandbox; the rest is as its user's settings and the server say. */
export interface SandboxOptions {
  readonly cpus?: number | null;
  readonly disk_mb?: number | null;
  readonly image?: string | null;
  readonly memory_mb?: number | null;
  readonly network?: "none" | "internal" | "full" | "host-access" | null;
  readonly processes?: number | null;
  readonly start_seconds?: number | null;
}

/** What came of it. */
export interface SandboxOutcome {
  readonly blob?: string | null;
  readonly failure?: SandboxFailure | null;
  readonly result?: Readonly<Record<string, unknown>>;
}

/** One request to the sandbox; with a `key` it is carried out at most once. */
export interface SandboxRequest {
  readonly args?: Readonly<Record<string, unknown>>;
  readonly blob?: string | null;
  readonly key?: string | null;
  readonly limit_seconds?: number | null;
  readonly op: "shell.run" | "shell.interrupt" | "shell.kill" | "kernel.run" | "kernel.restart" | "browser.run" | "ports.list" | "file.edit" | "file.range" | "file.read" | "file.whole" | "file.write" | "folder.list" | "patch.apply" | "search.glob" | "search.grep" | "git.diff" | "git.identity" | "git.log" | "git.status" | "workspace.facts" | "transfer.read" | "transfer.next" | "transfer.write" | "transfer.put" | "transfer.keep" | "transfer.drop";
}

/** The body of ``PUT /api/secrets/{name}``: what is left out, or null, stays as it is. */
export interface SecretChange {
  readonly description?: string | null;
  readonly name: string;
  readonly value?: string | null;
}

/** A secret as it is shown: its value never is. */
export interface SecretName {
  readonly description: string | null;
  readonly name: string;
}

/** A user's own secrets. */
export interface SecretNames {
  readonly custom_secrets: readonly SecretName[];
}

/** Always empty; the original has it. */
export interface SecretsStore {
  readonly provider_tokens: Readonly<Record<string, unknown>>;
}

/** For how long the process runs and rests, in seconds, and what it uses. */
export interface ServerInfo {
  readonly idle_time: number;
  readonly resources: Resources;
  readonly uptime: number;
}

/** The body of ``POST /api/settings``: only the fields that it names count, unknown ones are ignored. */
export interface SettingsChange {
  readonly agent?: string | null;
  readonly agent_options?: AgentOptions | null;
  readonly condenser_max_size?: number | null;
  readonly confirmation_mode?: boolean | null;
  readonly disabled_plugins?: readonly string[] | null;
  readonly disabled_skills?: readonly string[] | null;
  readonly email?: string | null;
  readonly email_verified?: boolean | null;
  readonly enable_default_condenser?: boolean;
  readonly enable_proactive_conversation_starters?: boolean;
  readonly enable_solvability_analysis?: boolean;
  readonly enable_sound_notifications?: boolean;
  readonly git_user_email?: string | null;
  readonly git_user_name?: string | null;
  readonly language?: string | null;
  readonly llm_agents?: Readonly<Record<string, string>> | null;
  readonly llm_api_key?: string | null;
  readonly llm_base_url?: string | null;
  readonly llm_model?: string | null;
  readonly llm_profile?: string | null;
  readonly llm_purposes?: Readonly<Record<string, string>> | null;
  readonly load_org_skills?: boolean | null;
  readonly load_project_skills?: boolean | null;
  readonly load_public_skills?: boolean | null;
  readonly max_budget_per_task?: number | null;
  readonly max_iterations?: number | null;
  readonly mcp_config?: McpConfig | null;
  readonly remote_runtime_resource_factor?: number | null;
  readonly runtime_extra_deps?: string | null;
  readonly runtime_startup_env_vars?: Readonly<Record<string, string>> | null;
  readonly sandbox_api_key?: string | null;
  readonly sandbox_base_container_image?: string | null;
  readonly sandbox_runtime_container_image?: string | null;
  readonly search_api_key?: string | null;
  readonly security_analyzer?: string | null;
  readonly system_message_suffix?: string | null;
  readonly user_consents_to_analytics?: boolean | null;
  readonly user_message_suffix?: string | null;
}

/** That the settings are stored, and what is to be said about unknown ones (an addition to the protocol). */
export interface SettingsStored {
  readonly message: string;
  readonly warnings?: readonly string[];
}

/** A share of a conversation. */
export interface ShareEntry {
  readonly access: "read" | "write";
  readonly created_at: string;
  readonly expires_at: string | null;
  readonly has_ended: boolean;
  readonly share_id: string;
  readonly user: string | null;
}

/** The shares of a conversation, oldest first. */
export interface ShareList {
  readonly results: readonly ShareEntry[];
}

/** The body of a new share. */
export interface ShareWish {
  readonly access?: "read" | "write";
  readonly expires_in?: number | null;
  readonly user?: string | null;
}

/** Conversations of others. */
export interface SharedConversations {
  readonly results: readonly ConversationInfo[];
}

/** An MCP server reached by streamable HTTP; `timeout` is in seconds, for connecting and for each call. */
export interface ShttpServer {
  readonly api_key?: string | null;
  readonly oauth?: McpOAuthClient | null;
  readonly timeout?: number | null;
  readonly url: string;
}

/** A sign-in that was begun. */
export interface SignInBegun {
  readonly url: string;
}

/** The body of a beginning. */
export interface SignInWish {
  readonly conversation_id?: string | null;
}

/** The tokens are forgotten here. */
export interface SignedOut {
  readonly message: string;
  readonly revoked: boolean;
}

/** The body of ``PATCH /api/skills/{name}``. */
export interface SkillSwitch {
  readonly enabled: boolean;
}

/** The body of ``PUT /api/skills/{name}``: Markdown, with a YAML header as in files. */
export interface SkillText {
  readonly content: string;
  readonly enabled?: boolean;
}

/** A file that could not be stored. */
export interface SkippedFile {
  readonly name: string;
  readonly reason: string;
}

/** An MCP server reached by server-sent events; `oauth` says as what client its users sign in (an addition). */
export interface SseServer {
  readonly api_key?: string | null;
  readonly oauth?: McpOAuthClient | null;
  readonly url: string;
}

/** The body of a start. */
export interface StartOptions {
  readonly providers_set?: readonly ("github" | "gitlab" | "bitbucket" | "enterprise_sso" | "azure_devops" | "forgejo")[] | null;
}

/** An MCP server that is a program; where it runs is the server's to say (setting `mcp_programs`). */
export interface StdioServer {
  readonly args?: readonly string[];
  readonly command: string;
  readonly env?: Readonly<Record<string, string>>;
  readonly name: string;
}

/** It is stored. */
export interface Stored {
  readonly id: number;
}

/** What a stream is to end with. */
export interface StreamOptions {
  readonly include_usage?: boolean;
}

/** How often something happens until it is a loop. */
export interface StuckDetectionThresholds {
  readonly action_error?: number;
  readonly action_observation?: number;
  readonly alternating_pattern?: number;
  readonly monologue?: number;
}

/** A task card of the client. */
export interface SuggestedTaskInput {
  readonly git_provider: "github" | "gitlab" | "bitbucket" | "enterprise_sso" | "azure_devops" | "forgejo";
  readonly issue_number: number;
  readonly repo: string;
  readonly task_type: "MERGE_CONFLICTS" | "FAILING_CHECKS" | "UNRESOLVED_COMMENTS" | "OPEN_ISSUE" | "OPEN_PR" | "CREATE_MICROAGENT";
  readonly title: string;
}

/** Work that waits for the user: a request of theirs that needs a hand, or an issue that they were given. */
export interface SuggestedTaskOutput {
  readonly git_provider: "github" | "gitlab" | "bitbucket" | "enterprise_sso" | "azure_devops" | "forgejo";
  readonly issue_number: number;
  readonly repo: string;
  readonly task_type: "MERGE_CONFLICTS" | "FAILING_CHECKS" | "UNRESOLVED_COMMENTS" | "OPEN_ISSUE";
  readonly title: string;
}

/** A text of a result. */
export interface TextBlock {
  readonly text: string;
  readonly type: "text";
}

/** The body of a rename. */
export interface TitleChange {
  readonly title: string;
}

/** A tool by name with its parameters, resolved through the registry when a conversation starts. */
export interface Tool {
  readonly name: string;
  readonly params?: Readonly<Record<string, unknown>>;
  readonly response_schema?: Readonly<Record<string, unknown>> | null;
}

/** Hints about a tool, with the names and defaults of the Model Context Protocol. */
export interface ToolAnnotations {
  readonly destructiveHint?: boolean;
  readonly idempotentHint?: boolean;
  readonly openWorldHint?: boolean;
  readonly readOnlyHint?: boolean;
  readonly title?: string | null;
}

/** The body of a change: all tools that there are from now on. */
export interface ToolsChange {
  readonly client_tools: readonly ClientToolSpec[];
}

/** The whole log without what is hidden. */
export interface Trajectory {
  readonly trajectory: readonly WireEvent[];
}

/** Bytes read and written. */
export interface Transferred {
  readonly read_bytes: number;
  readonly write_bytes: number;
}

/** What became of uploaded files. */
export interface Uploaded {
  readonly skipped_files: readonly SkippedFile[];
  readonly uploaded_files: readonly string[];
}

/** The tokens of all model calls behind an answer. */
export interface Usage {
  readonly completion_tokens: number;
  readonly prompt_tokens: number;
  readonly total_tokens: number;
}

/** Whose token it is. */
export interface User {
  readonly avatar_url: string;
  readonly company?: string | null;
  readonly email?: string | null;
  readonly id: string;
  readonly login: string;
  readonly name?: string | null;
}

/** The place of a conversation that waits for its turn to work. */
export interface Waiting {
  readonly message: string;
  readonly position: number;
}

/** What `/api/options/config` says, as later releases ask for it. */
export interface WebClientConfig {
  readonly app_mode?: "oss";
  readonly auth_url?: null;
  readonly error_message?: null;
  readonly faulty_models?: readonly string[];
  readonly feature_flags?: WebClientFlags;
  readonly github_app_slug?: null;
  readonly maintenance_start_time?: null;
  readonly posthog_client_key?: null;
  readonly providers_configured?: readonly string[];
  readonly recaptcha_site_key?: null;
  readonly updated_at?: "1970-01-01T00:00:00Z";
}

/** Parts of later releases' clients that are switched on: those that the first generation's routes serve. */
export interface WebClientFlags {
  readonly enable_billing?: false;
  readonly enable_jira?: false;
  readonly enable_jira_dc?: false;
  readonly enable_linear?: false;
  readonly hide_billing_page?: true;
  readonly hide_integrations_page?: false;
  readonly hide_llm_settings?: false;
  readonly hide_users_page?: true;
}

/** The same ports as older clients know them: addresses with their ports. */
export interface WebHosts {
  readonly hosts: Readonly<Record<string, number>>;
}

/** The body of a change; what is left out stays. */
export interface WebhookChange {
  readonly active?: boolean | null;
  readonly events?: readonly string[] | null;
  readonly secret?: string | null;
  readonly url?: string | null;
}

/** A webhook as its user sees it. */
export interface WebhookInfo {
  readonly active: boolean;
  readonly conversation_id: string | null;
  readonly created_at: string;
  readonly delivered_at: string | null;
  readonly events: readonly string[];
  readonly failing_since: string | null;
  readonly id: string;
  readonly problem: string;
  readonly url: string;
}

/** A user's webhooks, or a page of them. */
export interface WebhookList {
  readonly next_page_id: string | null;
  readonly results: readonly WebhookInfo[];
}

/** An event of the log: an action, or an observation. Its type says which `args` or `extras` it has. */
export interface WireEvent {
  readonly action?: string;
  readonly args?: Readonly<Record<string, unknown>>;
  readonly cause?: number;
  readonly content?: string;
  readonly extras?: Readonly<Record<string, unknown>>;
  readonly id: number;
  readonly idempotency_key?: string;
  readonly llm_metrics?: Readonly<Record<string, unknown>>;
  readonly message: string;
  readonly observation?: string;
  readonly source: "agent" | "user" | "environment";
  readonly success?: boolean;
  readonly timeout?: number;
  readonly timestamp: string;
  readonly tool_call_metadata?: Readonly<Record<string, unknown>>;
}

export interface Routes {
  readonly "GET /alive": { readonly body: undefined; readonly reply: Alive };
  readonly "POST /api/add-git-providers": { readonly body: GivenTokens; readonly reply: Confirmation };
  readonly "GET /api/admin/audit": { readonly body: undefined; readonly reply: AuditPage };
  readonly "GET /api/conversations": { readonly body: undefined; readonly reply: ConversationList };
  readonly "POST /api/conversations": { readonly body: NewConversation | null; readonly reply: ConversationReply };
  readonly "POST /api/conversations/import": { readonly body: readonly (Readonly<Record<string, unknown>>)[] | {
    readonly title?: string;
    readonly trajectory: readonly (Readonly<Record<string, unknown>>)[];
  }; readonly reply: ConversationReply };
  readonly "POST /api/conversations/import/archive": { readonly body: undefined; readonly reply: ConversationReply };
  readonly "DELETE /api/conversations/{conversation_id}": { readonly body: undefined; readonly reply: boolean };
  readonly "GET /api/conversations/{conversation_id}": { readonly body: undefined; readonly reply: ConversationInfo | null };
  readonly "PATCH /api/conversations/{conversation_id}": { readonly body: TitleChange; readonly reply: boolean };
  readonly "GET /api/conversations/{conversation_id}/archive": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/conversations/{conversation_id}/client-tools": { readonly body: undefined; readonly reply: ClientToolsReply };
  readonly "PUT /api/conversations/{conversation_id}/client-tools": { readonly body: ToolsChange; readonly reply: ClientToolsReply };
  readonly "GET /api/conversations/{conversation_id}/config": { readonly body: undefined; readonly reply: ConversationConfig };
  readonly "GET /api/conversations/{conversation_id}/download": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/conversations/{conversation_id}/events": { readonly body: EventFilter | null; readonly reply: EventsPage };
  readonly "POST /api/conversations/{conversation_id}/events": { readonly body: {
    readonly action?: "browse" | "browse_interactive" | "call_tool_mcp" | "change_agent_state" | "client_tool_result" | "condensation" | "condensation_request" | "delegate" | "edit" | "finish" | "loop_recovery" | "message" | "null" | "read" | "recall" | "reject" | "rewind" | "run" | "run_ipython" | "system" | "task_tracking" | "think" | "write";
    readonly args?: Readonly<Record<string, unknown>>;
    readonly cause?: unknown;
    readonly content?: string;
    readonly extras?: Readonly<Record<string, unknown>>;
    readonly id?: null | -1;
    readonly idempotency_key?: string | null;
    readonly observation?: "browse" | "condense" | "delegate" | "download" | "edit" | "error" | "loop_detection" | "mcp" | "null" | "read" | "recall" | "run" | "run_ipython" | "success" | "task_tracking" | "think" | "user_rejected" | "write";
    readonly timeout?: number | null;
  }; readonly reply: Done };
  readonly "POST /api/conversations/{conversation_id}/exp-config": { readonly body: ExperimentConfig; readonly reply: boolean };
  readonly "GET /api/conversations/{conversation_id}/files": { readonly body: undefined; readonly reply: Folder };
  readonly "POST /api/conversations/{conversation_id}/fork": { readonly body: ForkWish | null; readonly reply: ForkReply };
  readonly "GET /api/conversations/{conversation_id}/git/changes": { readonly body: undefined; readonly reply: readonly Change[] };
  readonly "GET /api/conversations/{conversation_id}/git/diff": { readonly body: undefined; readonly reply: Diff };
  readonly "GET /api/conversations/{conversation_id}/git/log": { readonly body: undefined; readonly reply: History };
  readonly "GET /api/conversations/{conversation_id}/git/status": { readonly body: undefined; readonly reply: GitStatus };
  readonly "GET /api/conversations/{conversation_id}/list-files": { readonly body: undefined; readonly reply: readonly string[] };
  readonly "GET /api/conversations/{conversation_id}/llm-profile": { readonly body: undefined; readonly reply: ProfileChoice };
  readonly "PUT /api/conversations/{conversation_id}/llm-profile": { readonly body: ProfileChoice; readonly reply: ProfileChoice };
  readonly "GET /api/conversations/{conversation_id}/log": { readonly body: undefined; readonly reply: LogPage };
  readonly "POST /api/conversations/{conversation_id}/log": { readonly body: AddedEvent; readonly reply: Stored };
  readonly "GET /api/conversations/{conversation_id}/log/live": { readonly body: undefined; readonly reply: unknown };
  readonly "POST /api/conversations/{conversation_id}/message": { readonly body: NewMessage; readonly reply: Done };
  readonly "GET /api/conversations/{conversation_id}/microagents": { readonly body: undefined; readonly reply: LoadedMicroagents };
  readonly "GET /api/conversations/{conversation_id}/ports": { readonly body: undefined; readonly reply: Ports };
  readonly "PUT /api/conversations/{conversation_id}/program": { readonly body: ProgramSettings; readonly reply: Done };
  readonly "GET /api/conversations/{conversation_id}/remember-prompt": { readonly body: undefined; readonly reply: RememberPrompt };
  readonly "POST /api/conversations/{conversation_id}/rewind": { readonly body: RewindWish; readonly reply: RewindReply };
  readonly "POST /api/conversations/{conversation_id}/sandbox": { readonly body: SandboxRequest; readonly reply: SandboxOutcome };
  readonly "DELETE /api/conversations/{conversation_id}/security/{path}": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/conversations/{conversation_id}/security/{path}": { readonly body: undefined; readonly reply: Alive };
  readonly "POST /api/conversations/{conversation_id}/security/{path}": { readonly body: undefined; readonly reply: unknown };
  readonly "PUT /api/conversations/{conversation_id}/security/{path}": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/conversations/{conversation_id}/select-file": { readonly body: undefined; readonly reply: FileText };
  readonly "GET /api/conversations/{conversation_id}/shares": { readonly body: undefined; readonly reply: ShareList };
  readonly "POST /api/conversations/{conversation_id}/shares": { readonly body: ShareWish | null; readonly reply: NewShare };
  readonly "DELETE /api/conversations/{conversation_id}/shares/{share_id}": { readonly body: undefined; readonly reply: boolean };
  readonly "POST /api/conversations/{conversation_id}/start": { readonly body: StartOptions | null; readonly reply: ConversationReply };
  readonly "POST /api/conversations/{conversation_id}/stop": { readonly body: undefined; readonly reply: ConversationReply };
  readonly "POST /api/conversations/{conversation_id}/submit-feedback": { readonly body: GivenFeedback; readonly reply: FeedbackReply };
  readonly "POST /api/conversations/{conversation_id}/tool-calls/{call_id}": { readonly body: ResultArgs; readonly reply: Done };
  readonly "GET /api/conversations/{conversation_id}/tools": { readonly body: undefined; readonly reply: AgentTools };
  readonly "GET /api/conversations/{conversation_id}/trajectory": { readonly body: undefined; readonly reply: Trajectory };
  readonly "POST /api/conversations/{conversation_id}/upload-files": { readonly body: undefined; readonly reply: Uploaded };
  readonly "GET /api/conversations/{conversation_id}/vscode-url": { readonly body: undefined; readonly reply: EditorAddress };
  readonly "GET /api/conversations/{conversation_id}/web-hosts": { readonly body: undefined; readonly reply: WebHosts };
  readonly "GET /api/conversations/{conversation_id}/workspace": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/conversations/{conversation_id}/zip-directory": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/docker-hosts": { readonly body: undefined; readonly reply: DockerHostList };
  readonly "PATCH /api/docker-hosts/{name}": { readonly body: DrainChange; readonly reply: DockerHostInfo };
  readonly "GET /api/feedback": { readonly body: undefined; readonly reply: FeedbackList };
  readonly "GET /api/llm-profiles": { readonly body: undefined; readonly reply: ProfileList };
  readonly "DELETE /api/llm-profiles/{name}": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/llm-profiles/{name}": { readonly body: undefined; readonly reply: ProfileInfo };
  readonly "PUT /api/llm-profiles/{name}": { readonly body: LLMProfile; readonly reply: ProfileInfo };
  readonly "POST /api/llm-profiles/{name}/test": { readonly body: undefined; readonly reply: ProfileTest };
  readonly "GET /api/mcp-sign-ins": { readonly body: undefined; readonly reply: McpSignInList };
  readonly "DELETE /api/mcp-sign-ins/{sign_in_id}": { readonly body: undefined; readonly reply: SignedOut };
  readonly "POST /api/mcp-sign-ins/{sign_in_id}": { readonly body: SignInWish | null; readonly reply: SignInBegun };
  readonly "GET /api/microagent-management/conversations": { readonly body: undefined; readonly reply: ConversationList };
  readonly "GET /api/notes": { readonly body: undefined; readonly reply: NoteList };
  readonly "POST /api/notes": { readonly body: NewNote; readonly reply: NoteEntry };
  readonly "DELETE /api/notes/{note_id}": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/notes/{note_id}": { readonly body: undefined; readonly reply: NoteEntry };
  readonly "PATCH /api/notes/{note_id}": { readonly body: NoteChange; readonly reply: NoteEntry };
  readonly "GET /api/options/agents": { readonly body: undefined; readonly reply: readonly string[] };
  readonly "GET /api/options/config": { readonly body: undefined; readonly reply: ClientConfig };
  readonly "GET /api/options/models": { readonly body: undefined; readonly reply: readonly string[] };
  readonly "GET /api/options/security-analyzers": { readonly body: undefined; readonly reply: readonly string[] };
  readonly "GET /api/plugins": { readonly body: undefined; readonly reply: PluginList };
  readonly "POST /api/plugins": { readonly body: NewPlugin; readonly reply: PluginEntry };
  readonly "DELETE /api/plugins/{plugin_name}": { readonly body: undefined; readonly reply: Confirmation };
  readonly "GET /api/plugins/{plugin_name}": { readonly body: undefined; readonly reply: PluginEntry };
  readonly "PATCH /api/plugins/{plugin_name}": { readonly body: PluginSwitch; readonly reply: Confirmation };
  readonly "POST /api/plugins/{plugin_name}/update": { readonly body: PluginUpdateWish; readonly reply: PluginChange };
  readonly "POST /api/reset-settings": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/secrets": { readonly body: undefined; readonly reply: SecretNames };
  readonly "POST /api/secrets": { readonly body: NewSecret; readonly reply: Confirmation };
  readonly "DELETE /api/secrets/{secret_id}": { readonly body: undefined; readonly reply: Confirmation };
  readonly "PUT /api/secrets/{secret_id}": { readonly body: SecretChange; readonly reply: Confirmation };
  readonly "GET /api/settings": { readonly body: undefined; readonly reply: PublicSettings };
  readonly "POST /api/settings": { readonly body: SettingsChange; readonly reply: SettingsStored };
  readonly "GET /api/shared": { readonly body: undefined; readonly reply: SharedConversations };
  readonly "POST /api/shared": { readonly body: undefined; readonly reply: OpenedShare };
  readonly "GET /api/skills": { readonly body: undefined; readonly reply: OwnSkills };
  readonly "DELETE /api/skills/{skill_name}": { readonly body: undefined; readonly reply: Confirmation };
  readonly "GET /api/skills/{skill_name}": { readonly body: undefined; readonly reply: OwnSkill };
  readonly "PATCH /api/skills/{skill_name}": { readonly body: SkillSwitch; readonly reply: Confirmation };
  readonly "PUT /api/skills/{skill_name}": { readonly body: SkillText; readonly reply: OwnSkill };
  readonly "POST /api/unset-provider-tokens": { readonly body: undefined; readonly reply: Confirmation };
  readonly "GET /api/user/info": { readonly body: undefined; readonly reply: User };
  readonly "GET /api/user/installations": { readonly body: undefined; readonly reply: readonly string[] };
  readonly "GET /api/user/repositories": { readonly body: undefined; readonly reply: readonly Repository[] };
  readonly "GET /api/user/repository/branches": { readonly body: undefined; readonly reply: BranchesPage };
  readonly "GET /api/user/repository/{repository}/microagents": { readonly body: undefined; readonly reply: readonly MicroagentEntry[] };
  readonly "GET /api/user/repository/{repository}/microagents/content": { readonly body: undefined; readonly reply: Microagent };
  readonly "GET /api/user/search/branches": { readonly body: undefined; readonly reply: readonly Branch[] };
  readonly "GET /api/user/search/repositories": { readonly body: undefined; readonly reply: readonly Repository[] };
  readonly "GET /api/user/suggested-tasks": { readonly body: undefined; readonly reply: readonly SuggestedTaskOutput[] };
  readonly "GET /api/v1/app-conversations": { readonly body: undefined; readonly reply: readonly null[] };
  readonly "GET /api/v1/app-conversations/start-tasks": { readonly body: undefined; readonly reply: readonly null[] };
  readonly "GET /api/v1/app-conversations/start-tasks/search": { readonly body: undefined; readonly reply: NoTasks };
  readonly "GET /api/v1/sandboxes": { readonly body: undefined; readonly reply: readonly null[] };
  readonly "GET /api/v1/web-client/config": { readonly body: undefined; readonly reply: WebClientConfig };
  readonly "GET /api/webhooks": { readonly body: undefined; readonly reply: WebhookList };
  readonly "POST /api/webhooks": { readonly body: NewWebhook; readonly reply: CreatedWebhook };
  readonly "DELETE /api/webhooks/{webhook_id}": { readonly body: undefined; readonly reply: unknown };
  readonly "GET /api/webhooks/{webhook_id}": { readonly body: undefined; readonly reply: WebhookInfo };
  readonly "PATCH /api/webhooks/{webhook_id}": { readonly body: WebhookChange; readonly reply: WebhookInfo };
  readonly "POST /api/webhooks/{webhook_id}/replay": { readonly body: Replay; readonly reply: WebhookInfo };
  readonly "GET /health": { readonly body: undefined; readonly reply: string };
  readonly "GET /ready": { readonly body: undefined; readonly reply: Readiness };
  readonly "GET /server_info": { readonly body: undefined; readonly reply: ServerInfo };
  readonly "POST /v1/chat/completions": { readonly body: ChatRequest; readonly reply: Completion };
  readonly "GET /v1/models": { readonly body: undefined; readonly reply: ModelList };
  readonly "GET /v1/models/{model}": { readonly body: undefined; readonly reply: Model };
}
