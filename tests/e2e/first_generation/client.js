// A client as the first generation's own: it asks, sends and draws what that one does, with the same library for its socket, and notes whatever would have broken that one in `walk.problems`.

import { io } from "/assets/socket.io-4.8.js";
import { answers, eventProblems, problems } from "/assets/expectations-1.js";
import { otherScreens, panel, settingsPages } from "/assets/screens-1.js";

const POLL_STARTING = 300; // the original asks every 3 s
const RUNTIME_DONE = ["STATUS$READY", "STATUS$RUNTIME_STARTED"];
const NOT_READY = ["loading", "init", "error"];
const NEVER_FIRST = ["recall", "run", "change_agent_state", "system"];
const PICTURE = "data:image/png;base64,"; // the one beginning that the original knows; it is put before any other
const UNSEEN = ["think", "recall", "agent_state_changed"];

const at = (id) => document.getElementById(id);
const walk = { calls: [], problems: [], events: [], sockets: 0, frames: [], refetches: 0, optimistic: null, asked: null };
window.walk = walk;

let conversation = null;
let socket = null;
let lastId;
let state = "loading";
let key = "";
let drawn = { length: 0, isAsking: false };
let timer = 0;
let pending = 0;
let isProvided = false;

function wrong(...found) {
  walk.problems.push(...found.filter((one) => !walk.problems.includes(one)));
}

// What the browser itself breaks off, because the machine's network has changed, is asked again: the original's library does.
async function get(path, options) {
  pending += 1;
  try {
    for (let tries = 1; ; tries += 1) {
      try {
        return await fetch(path, options);
      } catch (error) {
        if (tries === 4) throw error;
        await new Promise((resolve) => setTimeout(resolve, 300));
      }
    }
  } finally {
    pending -= 1;
  }
}

async function ask(method, path, form, body, expected = 200) {
  const isForm = body instanceof FormData;
  const options = { method, headers: {} };
  if (body !== undefined) options.body = isForm ? body : JSON.stringify(body);
  if (body !== undefined && !isForm) options.headers["Content-Type"] = "application/json";
  const response = await get(path, options);
  walk.calls.push(`${method} ${path} ${response.status}`);
  if (response.status !== expected) wrong(`${method} ${path}: ${response.status} ${await response.text()}`);
  const value = await response.json().catch(() => wrong(`${method} ${path}: no JSON`));
  if (form !== undefined && value !== null) wrong(...problems(answers[form], value, path));
  return value;
}

const base = () => conversation.url ?? `/api/conversations/${conversation.conversation_id}`;
const own = (rest) => `/api/conversations/${conversation.conversation_id}${rest}`;

// --- A and B: the first page, and the settings ---

async function boot() {
  if (window.inline?.isThere !== true) wrong("the script within the page did not run");
  await ask("GET", "/locales/en/translation.json");
  await Promise.all([ask("GET", "/api/options/config", "config"), ask("GET", "/api/options/config", "config")]);
  const id = location.pathname.startsWith("/conversations/") ? location.pathname.split("/")[2] : null;
  if (id !== null) return Promise.all([open(id), settings()]);
  await Promise.all([settings(), home()]);
}

async function settings() {
  const response = await get("/api/settings");
  walk.calls.push(`GET /api/settings ${response.status}`);
  const value = await response.json();
  if (response.status === 404) {
    for (const name of ["models", "agents", "security-analyzers"]) {
      const names = await ask("GET", `/api/options/${name}`);
      if (!Array.isArray(names) || !names.every((one) => typeof one === "string")) wrong(`options ${name}`);
    }
    await saveSettings({});
  } else wrong(...problems(answers.settings, value, "settings"));
}

async function saveSettings(changes) {
  const complete = {
    llm_base_url: "", agent: "CodeActAgent", language: "en", confirmation_mode: false, security_analyzer: "llm",
    remote_runtime_resource_factor: 1, enable_default_condenser: true, condenser_max_size: 120,
    enable_sound_notifications: false, user_consents_to_analytics: false, provider_tokens_set: {},
    mcp_config: { sse_servers: [], stdio_servers: [], shttp_servers: [] }, enable_proactive_conversation_starters: false,
    enable_solvability_analysis: false, search_api_key: "", max_budget_per_task: null, git_user_name: "openhands",
    git_user_email: "openhands@all-hands.dev",
  };
  // The address of the scripted model is the server's own: a real client would show and keep it.
  const { llm_base_url: _, ...kept } = complete;
  await ask("POST", "/api/settings", undefined, { ...kept, ...changes });
  await ask("GET", "/api/settings", "settings");
}

async function home() {
  const page = await ask("GET", "/api/conversations?limit=10", "conversations");
  at("list").replaceChildren(...page.results.map((one) => {
    const item = document.createElement("li");
    item.textContent = one.title;
    item.dataset.id = one.conversation_id;
    item.dataset.status = one.status;
    item.onclick = () => { history.pushState(null, "", `/conversations/${one.conversation_id}`); open(one.conversation_id); };
    return item;
  }));
  return page.results;
}

// --- C and E: a conversation, from its making or its address to its socket ---

async function create() {
  const made = await ask("POST", "/api/conversations", "created", {});
  if (made.conversation_id.startsWith("task-")) wrong("an id that means something else");
  history.pushState(null, "", `/conversations/${made.conversation_id}`);
  const listed = await home();
  if (!listed.some((one) => one.conversation_id === made.conversation_id)) wrong("it is not in the list at once");
  await open(made.conversation_id);
}

async function open(id) {
  leave();
  at("conversation").hidden = false;
  conversation = { conversation_id: id };
  await refetch();
  if (conversation?.status === "STOPPED") {
    await ask("POST", own("/start"), "started", { providers_set: [] });
    await refetch();
  }
}

async function refetch() {
  const id = conversation.conversation_id;
  const found = await ask("GET", `/api/conversations/${id}`, "conversation");
  if (conversation?.conversation_id !== id) return;
  if (found === null) {
    at("banner").textContent = "This conversation does not exist";
    return;
  }
  conversation = found;
  at("title").textContent = found.title;
  connectIfReady();
  draw();
  clearTimeout(timer);
  timer = setTimeout(() => refetch(), found.status === "STARTING" ? POLL_STARTING : 30000);
}

function connectIfReady() {
  const { status, runtime_status, url } = conversation;
  if (status !== "RUNNING" || !runtime_status || runtime_status === "STATUS$STOPPED") return;
  const present = JSON.stringify([url, status, runtime_status]);
  if (present === key) return;
  key = present; // a change of any of them drops the socket and opens another one
  socket?.disconnect();
  walk.sockets += 1;
  const query = {
    latest_event_id: lastId ?? -1, conversation_id: conversation.conversation_id, providers_set: [],
    session_api_key: conversation.session_api_key,
  };
  const opened = io(location.host, { path: "/socket.io", transports: ["websocket"], query });
  const seen = new Set();
  opened.on("connect", () => { seen.clear(); at("line").dataset.line = "CONNECTED"; });
  opened.on("oh_event", (event) => receive(event, seen));
  opened.on("connect_error", (error) => { at("banner").textContent = error.message; wrong(`connect_error ${error.message}`); });
  opened.on("disconnect", () => {
    at("line").dataset.line = "DISCONNECTED";
    opened.io.opts.query.latest_event_id = lastId;
  });
  socket = opened;
}

function leave() {
  clearTimeout(timer);
  socket?.off();
  socket?.disconnect();
  socket = null;
  conversation = null;
  [key, state, lastId, isProvided] = ["", "loading", undefined, false];
  drawn = { length: 0, isAsking: false };
  Object.assign(walk, { events: [], optimistic: null, asked: null });
  for (const id of ["chat", "terminal", "tasks", "changes", "banner", "usage", "address"]) at(id).replaceChildren();
  at("screenshot").removeAttribute("src");
}

// --- 3: what comes over the socket ---

function receive(event, seen) {
  walk.frames.push(event);
  if (Number.isInteger(event.id)) {
    if (seen.has(event.id)) wrong(`event ${event.id} came twice on one connection`);
    seen.add(event.id);
    lastId = event.id;
  } else if ("id" in event && !("status_update" in event)) wrong(`the id ${JSON.stringify(event.id)} is no number`);
  if (event.status_update === true) return status(event);
  if (event.error === true) return undefined;
  wrong(...("timestamp" in event ? eventProblems(event) : []));
  sideEffects(event);
  if (["id", "source", "message", "timestamp"].every((name) => name in event) && event.observation !== "agent_state_changed") {
    walk.events.push(event);
    if (event.action === "message" && event.source === "user") walk.optimistic = null;
    at("banner").textContent = event.observation === "error" ? at("banner").textContent : "";
  }
  draw();
  return undefined;
}

function status(event) {
  if ("conversation_title" in event) {
    if (event.message !== conversation.conversation_id) wrong("a title of another conversation");
    walk.refetches += 1;
    refetch();
  } else if (event.type === "error" && "source" in event && "timestamp" in event) at("banner").textContent = event.message;
}

function sideEffects(event) {
  if (event.observation === "agent_state_changed") {
    state = event.extras.agent_state;
    if (state === "error") at("banner").textContent = event.extras.reason || "Unknown error";
    if (!NOT_READY.includes(state) && !isProvided) provide();
  }
  if (event.llm_metrics && !event.args.hidden) {
    const { accumulated_cost: cost, accumulated_token_usage: used } = event.llm_metrics;
    at("usage").textContent = `$${cost.toFixed(4)} ${used.prompt_tokens + used.completion_tokens} tokens`;
  }
  if (event.action === "run" && !event.args.hidden) at("terminal").append(`$ ${event.args.command}\n`);
  if (event.observation === "run" && !event.extras.hidden) at("terminal").append(`${event.content.slice(0, 5000)}\n`);
  if (event.observation === "browse") {
    const { screenshot } = event.extras;
    if (screenshot) at("screenshot").src = screenshot.startsWith(PICTURE) ? screenshot : `${PICTURE}${screenshot}`;
    at("address").textContent = event.extras.url;
  }
  if (["run", "edit", "write"].includes(event.action)) changes();
}

// What is asked for as soon as the agent is there (4.1 C 10): all at once.
async function provide() {
  isProvided = true;
  const [, , { hosts }] = await Promise.all([
    ask("GET", `${base()}/config`, "runtime"), changes(), ask("GET", `${base()}/web-hosts`, "hosts"),
    ask("GET", `${base()}/vscode-url`, "editor"),
  ]);
  appHosts = Object.keys(hosts);
}

let appHosts = [];

let isAskingChanges = false;
async function changes() {
  if (isAskingChanges) return;
  isAskingChanges = true;
  const response = await get(`${base()}/git/changes`);
  isAskingChanges = false;
  const value = await response.json();
  walk.calls.push(`GET git/changes ${response.status}`);
  if (response.status === 404 && /not a git repository/i.test(value.error)) return;
  if (response.status !== 200) return wrong(`git/changes: ${response.status} ${value.error}`);
  for (const one of value) if (!"MADUR".includes(one.status) || typeof one.path !== "string") wrong(`changes ${JSON.stringify(one)}`);
  at("changes").replaceChildren(...value.map((one) => Object.assign(document.createElement("li"), { textContent: `${one.status} ${one.path}` })));
}

// --- drawing ---

function isDrawn(event) {
  const name = event.action ?? event.observation;
  if (UNSEEN.includes(name) && event.action !== "think") return false;
  if (["system", "change_agent_state"].includes(event.action)) return false;
  return !(event.source === "user" && name === "run");
}

// An action is replaced by its result, all but its thought.
function linesOf(events) {
  const answered = new Set(events.filter((event) => "observation" in event).map((event) => event.cause));
  return events.flatMap((event) => {
    const { action, args } = event;
    const thought = args?.thought && !["think", "message", "finish"].includes(action) ? [thoughtOf(event)] : [];
    if (action === undefined || !answered.has(event.id)) return [...thought, lineOf(event)];
    if (["message", "finish"].includes(action)) {
      if (!args.thought) wrong(`what was said in ${action} ${event.id} disappears`);
      return [thoughtOf(event)];
    }
    return thought;
  });
}

// Failure is told by a word; what succeeded is drawn as its diff, whatever that is.
function editText({ id, content, extras }) {
  if (content.length === 0 || content.toLowerCase().includes("error:")) return content;
  if (typeof extras.diff !== "string") wrong(`edit ${id} is drawn as ${extras.diff}`);
  return extras.diff;
}

function thoughtOf({ args, source }) {
  if (typeof args.thought !== "string") wrong(`a thought that is no text: ${JSON.stringify(args)}`);
  const line = Object.assign(document.createElement("li"), { textContent: args.thought });
  Object.assign(line.dataset, { type: "thought", kind: "thought", source });
  return line;
}

function draw() {
  at("state").textContent = state;
  at("line").textContent = lineText();
  const isBegun = walk.events.some((e) => e.source === "user" && "action" in e && !NEVER_FIRST.includes(e.action));
  const events = isBegun ? walk.events.filter(isDrawn) : [];
  if (events.length !== drawn.length) {
    // Only now: the list is drawn anew when its length changes, not when the state does.
    const last = events.at(-1);
    const canAsk = last?.source === "agent" && !["error", "user_rejected", "finish"].includes(last.observation ?? last.action);
    drawn = { length: events.length, isAsking: canAsk && state === "awaiting_user_confirmation" };
    const lines = linesOf(events);
    if (walk.optimistic !== null) lines.push(Object.assign(document.createElement("li"), { textContent: walk.optimistic }));
    at("chat").replaceChildren(...lines);
  }
  const target = walk.events.findLast((e) => e.source === "agent" && e.args?.confirmation_state === "awaiting_confirmation");
  at("question").hidden = !(drawn.isAsking && state === "awaiting_user_confirmation" && target !== undefined);
  at("danger").hidden = target?.args.security_risk !== 2;
  const isDeaf = ["loading", "awaiting_user_confirmation"].includes(state) || conversation?.status === "STOPPED";
  at("input").disabled = isDeaf;
  at("stop").disabled = state !== "running";
}

function lineText() {
  if (conversation === null) return "";
  if (conversation.status === "STOPPED") return "Stopped";
  if (conversation.runtime_status && !RUNTIME_DONE.includes(conversation.runtime_status)) return conversation.runtime_status;
  return at("line").dataset.line ?? "CONNECTING";
}

function lineOf(event) {
  const line = document.createElement("li");
  const name = event.action ?? event.observation;
  Object.assign(line.dataset, { type: name, kind: "action" in event ? "action" : "observation", source: event.source });
  if (event.action === "message") line.textContent = event.source === "user" ? event.args.content : event.message;
  else if (event.action === "finish") line.textContent = event.args.final_thought;
  else if (event.action === "think") line.textContent = event.args.thought;
  else if (event.observation === "edit") line.textContent = editText(event);
  else if (event.observation === "run") line.textContent = `${event.success ? "ok" : "failed"}: ${event.content.slice(0, 1000)}`;
  else line.textContent = event.content ?? event.message;
  for (const url of event.args?.image_urls ?? event.extras?.image_urls ?? []) line.append(Object.assign(new Image(), { src: url, alt: "" }));
  if (event.observation === "task_tracking") {
    at("tasks").replaceChildren(...event.extras.task_list.map((task) => {
      const item = Object.assign(document.createElement("li"), { textContent: task.title });
      item.dataset.status = task.status;
      return item;
    }));
  }
  return line;
}

// --- 2: what the user does ---

async function say(content) {
  let [text, files] = [content, []];
  const chosen = at("file").files;
  if (chosen.length > 0) {
    const form = new FormData();
    for (const file of chosen) form.append("files", file);
    files = (await ask("POST", `${base()}/upload-files`, "uploaded", form)).uploaded_files;
    text = `${content}\n\nNEW FILES ADDED: ${files.join("\n\n")}`;
    at("file").value = "";
  }
  walk.optimistic = content;
  const args = { content: text, image_urls: [], file_urls: files, timestamp: new Date().toISOString() };
  socket.emit("oh_user_action", { action: "message", args });
}

const change = (wanted) => socket.emit("oh_user_action", { action: "change_agent_state", args: { agent_state: wanted } });
at("new").onclick = () => create();
at("home").onclick = () => { leave(); at("conversation").hidden = true; history.pushState(null, "", "/"); home(); };
at("send").onclick = () => { say(at("input").value || "continue"); at("input").value = ""; };
at("stop").onclick = () => change("stopped");
at("confirm").onclick = () => change("user_confirmed");
at("reject").onclick = () => change("user_rejected");

// The tab of the editor: its address in a frame, where it is of the page's own protocol.
async function editor() {
  const { vscode_url: address } = await ask("GET", `${base()}/vscode-url`, "editor");
  if (new URL(address).protocol !== location.protocol) wrong(`an editor of another protocol: ${address}`);
  document.body.append(Object.assign(document.createElement("iframe"), { id: "editor", src: address }));
  return address;
}

// The tab of what the agent serves: the hosts that it was told of at the beginning are polled, and the first that answers
// is taken for an origin, with a path behind it.
async function served() {
  for (;;) {
    for (const [number, host] of appHosts.entries()) {
      const isThere = await get(host).then((response) => response.ok, () => false);
      if (!isThere) continue;
      document.getElementById("served")?.remove();
      document.body.append(Object.assign(document.createElement("iframe"), { id: "served", src: `${host}/` }));
      return [appHosts, number];
    }
    await new Promise((resolve) => setTimeout(resolve, 3000));
  }
}

// F, and what else is in the menus.
Object.assign(walk, {
  saveSettings,
  rename: (title) => ask("PATCH", own(""), undefined, { title }),
  stopRuntime: () => ask("POST", own("/stop"), "stopped"),
  remove: () => ask("DELETE", own("")),
  diff: (path) => ask("GET", `${base()}/git/diff?path=${encodeURIComponent(path)}`, "diff"),
  trajectory: () => ask("GET", `${base()}/trajectory`, "trajectory"),
  microagents: () => ask("GET", `${base()}/microagents`, "microagents"),
  files: () => ask("GET", `${base()}/list-files`),
  ownMicroagents: () => ask("GET", `${base()}/list-files?path=${encodeURIComponent("n/.openhands/microagents")}`),
  editor: () => editor(),
  served: () => served(),
  panel: () => panel(ask),
  settingsPages: () => settingsPages(ask),
  otherScreens: () => otherScreens(ask),
  state: () => state,
  isQuiet: () => pending === 0,
  async workspace() {
    const response = await fetch(`${base()}/zip-directory`);
    if (response.status !== 200 || !response.headers.get("content-type").includes("zip")) wrong(`zip ${response.status}`);
    return new Uint8Array(await response.arrayBuffer()).slice(0, 2).join();
  },
});

boot().then(() => { walk.isUp = true; }, (error) => wrong(`boot: ${error.stack}`));
