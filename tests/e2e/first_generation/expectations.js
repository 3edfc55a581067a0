// What a client of the first generation reads of each answer and of each event. A field
// that is missing, or of another type, is what would have broken it.

const text = (value) => typeof value === "string";
const flag = (value) => typeof value === "boolean";
const number = (value) => typeof value === "number";
const integer = (value) => Number.isInteger(value);
const object = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const list = (value) => Array.isArray(value);
const texts = (value) => list(value) && value.every(text);
const orNull = (check) => (value) => value === null || check(value);
const one = (...words) => (value) => words.includes(value);
const listOf = (check) => (value) => list(value) && value.every(check);
const each = (fields) => (value) => object(value) && problems(fields, value, "").length === 0;

export function problems(fields, value, where) {
  if (!object(value)) return [`${where} is no object: ${JSON.stringify(value)}`];
  return Object.entries(fields)
    .filter(([name, check]) => !check(value[name]))
    .map(([name]) => `${where}.${name}: ${JSON.stringify(value[name])}`);
}

const optional = (check) => (value) => value === undefined || check(value);
const conversation = {
  conversation_id: text,
  title: text,
  last_updated_at: orNull(text),
  status: one("STARTING", "RUNNING", "STOPPED", "ARCHIVED", "ERROR"),
  runtime_status: orNull(text),
  selected_repository: orNull(text),
  selected_branch: orNull(text),
  git_provider: orNull(text),
  trigger: orNull(text),
  num_connections: integer,
  url: orNull(text),
  session_api_key: orNull(text),
  created_at: (value) => text(value) && value.endsWith("Z") && !Number.isNaN(Date.parse(value)),
  pr_number: listOf(integer),
  conversation_version: one("V0"),
  sub_conversation_ids: texts,
};

export const answers = {
  config: { APP_MODE: one("oss"), GITHUB_CLIENT_ID: text, POSTHOG_CLIENT_KEY: one(""), FEATURE_FLAGS: object },
  settings: {
    provider_tokens_set: object,
    llm_api_key_set: flag,
    search_api_key_set: flag,
    llm_api_key: one(null),
    search_api_key: one(null),
    language: orNull(text),
    llm_model: orNull(text),
    agent: orNull(text),
    confirmation_mode: orNull(flag),
    security_analyzer: orNull(text),
    enable_default_condenser: flag,
    condenser_max_size: orNull(integer),
    user_consents_to_analytics: orNull(flag),
    max_budget_per_task: orNull(number),
    mcp_config: orNull(each({ sse_servers: list, stdio_servers: list, shttp_servers: list })),
    v1_enabled: one(false),
  },
  laterConfig: { app_mode: one("oss"), posthog_client_key: one(null), feature_flags: object, faulty_models: list },
  conversation,
  conversations: { results: listOf(each(conversation)), next_page_id: orNull(text) },
  secrets: { custom_secrets: listOf(each({ name: text, description: orNull(text) })) },
  tasks: { items: (value) => list(value) && value.length === 0, next_page_id: one(null) },
  created: { status: one("ok"), conversation_id: text, message: one(null), conversation_status: one("STARTING") },
  started: { status: one("ok"), conversation_id: text },
  stopped: { status: one("ok"), conversation_id: text, message: text, conversation_status: text },
  runtime: { runtime_id: one(null) },
  hosts: { hosts: object },
  editor: { vscode_url: orNull(text) },
  diff: { modified: text, original: text },
  uploaded: { uploaded_files: texts, skipped_files: listOf(each({ name: text, reason: text })) },
  trajectory: { trajectory: listOf(object) },
  microagents: { microagents: listOf(each({ name: text, type: one("repo", "knowledge"), content: text })) },
};

const confirmed = one("confirmed", "rejected", "awaiting_confirmation");
const tasks = listOf(each({ id: text, title: text, status: one("todo", "in_progress", "done"), notes: text }));
export const actions = {
  message: { content: text, image_urls: orNull(texts), file_urls: orNull(texts) },
  system: { content: text, tools: orNull(listOf(object)), openhands_version: orNull(text), agent_class: orNull(text) },
  run: { command: text, thought: text, hidden: flag, confirmation_state: confirmed, security_risk: integer },
  run_ipython: { code: text, thought: text, confirmation_state: confirmed, security_risk: integer },
  read: { path: text, thought: text },
  write: { path: text, content: text },
  edit: { path: text, command: text, thought: text },
  browse: { url: text },
  browse_interactive: { browser_actions: text },
  think: { thought: text },
  finish: { final_thought: text, outputs: object },
  task_tracking: { command: text, task_list: tasks },
  change_agent_state: { agent_state: text },
};
export const observations = {
  run: { command: text, metadata: each({ exit_code: integer, working_dir: orNull(text) }), hidden: flag },
  run_ipython: { code: text, image_urls: orNull(texts) },
  read: { path: text },
  write: { path: text },
  edit: { path: text, diff: orNull(text), prev_exist: flag },
  browse: { url: text, screenshot: text, error: flag, open_pages_urls: list },
  error: { error_id: text },
  agent_state_changed: { agent_state: text, reason: text },
  recall: { recall_type: text, microagent_knowledge: list },
  mcp: { name: text, arguments: object },
  task_tracking: { command: text, task_list: tasks },
};
const usage = {
  model: text,
  prompt_tokens: integer,
  completion_tokens: integer,
  cache_read_tokens: integer,
  cache_write_tokens: integer,
  context_window: integer,
  per_turn_token: integer,
};
const metrics = {
  accumulated_cost: number,
  max_budget_per_task: orNull(number),
  accumulated_token_usage: each(usage),
};

export function eventProblems(event) {
  const isAction = "action" in event;
  const name = event.action ?? event.observation;
  const where = `${name} ${event.id}`;
  const envelope = { message: text, source: one("agent", "user", "environment"), timestamp: (t) => !Number.isNaN(Date.parse(t)) };
  const found = problems({ ...envelope, id: optional(integer), cause: optional(integer) }, event, where);
  if (isAction) found.push(...problems(actions[name] ?? {}, event.args, `${where} args`));
  else found.push(...problems({ content: text }, event, where), ...problems(observations[name] ?? {}, event.extras, where));
  if (event.llm_metrics) found.push(...problems(metrics, event.llm_metrics, `${where} llm_metrics`));
  if (name === "run" && !isAction && !flag(event.success)) found.push(`${where}.success`);
  return found;
}
