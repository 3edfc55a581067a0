/** The REST routes that the page uses, typed. */
import type { Fields } from "../protocol/events";
import { booleanField, listField, numberField, objectField, stringField, stringListField } from "../protocol/fields";
import type {
  ConversationCreated,
  ConversationInfo,
  ConversationPage,
  ConversationStatus,
  DockerHost,
  DrydockInfo,
  EventPage,
  McpSignIn,
  SecretName,
  ServerConfig,
  Settings,
  SettingsChange,
  StartingPoint,
} from "../protocol/rest";
import { toPorts } from "../protocol/ports";
import type { Ports } from "../protocol/ports";
import { ApiError } from "./http";
import type { Request } from "./http";
import { WorkKeys } from "./keys";

const STATUSES: ReadonlySet<string> = new Set(["STARTING", "RUNNING", "STOPPED", "ARCHIVED", "ERROR"]);
/** Fields of a settings answer that are not settings. */
const READ_ONLY_SETTINGS = [
  "llm_api_key_set",
  "search_api_key_set",
  "provider_tokens_set",
  "secrets_store",
  "v1_enabled",
];

export interface EventQuery {
  readonly startId?: number;
  readonly endId?: number;
  readonly reverse?: boolean;
  readonly limit: number;
}

function asFields(value: unknown): Fields {
  return objectField({ value }, "value") ?? {};
}

function nullable(fields: Fields, name: string): string | null {
  return stringField(fields, name) || null;
}

function toStatus(text: string): ConversationStatus {
  return STATUSES.has(text) ? (text as ConversationStatus) : "STOPPED";
}

export function toConversation(value: unknown): ConversationInfo {
  const fields = asFields(value);
  const id = stringField(fields, "conversation_id");
  return {
    conversation_id: id,
    title: stringField(fields, "title") || `Conversation ${id.slice(0, 5)}`,
    status: toStatus(stringField(fields, "status")),
    runtime_status: nullable(fields, "runtime_status"),
    runtime_warning: nullable(fields, "runtime_warning"),
    waiting: nullable(objectField(fields, "waiting") ?? {}, "message"),
    created_at: stringField(fields, "created_at"),
    last_updated_at: nullable(fields, "last_updated_at"),
    selected_repository: nullable(fields, "selected_repository"),
    selected_branch: nullable(fields, "selected_branch"),
    session_api_key: nullable(fields, "session_api_key"),
    url: nullable(fields, "url"),
    access: toAccess(stringField(fields, "access")),
  };
}

function toAccess(text: string): "owner" | "write" | "read" {
  return text === "read" || text === "write" ? text : "owner";
}

function toDrydockInfo(fields: Fields): DrydockInfo {
  const sandbox = objectField(fields, "sandbox") ?? {};
  return {
    version: stringField(fields, "version"),
    sandbox: { provider: stringField(sandbox, "provider"), reason: stringField(sandbox, "reason") },
    model: stringField(fields, "model"),
    demo: booleanField(fields, "demo"),
    auth_required: booleanField(fields, "auth_required"),
    settings_stored: fields.settings_stored !== false,
    account: toAccount(objectField(fields, "account")),
    guest: booleanField(fields, "guest"),
  };
}

function toAccount(fields: Fields | null): DrydockInfo["account"] {
  const role = stringField(fields ?? {}, "role");
  if (fields === null) return null;
  return { name: stringField(fields, "name"), role: role === "administrator" || role === "viewer" ? role : "user" };
}

function toSettings(fields: Fields): Settings {
  return {
    ...fields,
    llm_model: nullable(fields, "llm_model"),
    llm_api_key_set: booleanField(fields, "llm_api_key_set"),
    llm_base_url: nullable(fields, "llm_base_url"),
    confirmation_mode: typeof fields.confirmation_mode === "boolean" ? fields.confirmation_mode : null,
    security_analyzer: nullable(fields, "security_analyzer"),
    max_iterations: numberField(fields, "max_iterations"),
    max_budget_per_task: numberField(fields, "max_budget_per_task"),
    git_user_name: nullable(fields, "git_user_name"),
    git_user_email: nullable(fields, "git_user_email"),
  };
}

const HOST_STATUSES: ReadonlySet<string> = new Set(["up", "draining", "lost"]);

function toDockerHost(fields: Fields): DockerHost {
  const status = stringField(fields, "status");
  return {
    name: stringField(fields, "name"),
    url: stringField(fields, "url"),
    status: HOST_STATUSES.has(status) ? (status as DockerHost["status"]) : "lost",
    reason: nullable(fields, "reason"),
    since: stringField(fields, "since"),
    version: stringField(fields, "version"),
    processors: numberField(fields, "processors") ?? 0,
    memory: numberField(fields, "memory") ?? 0,
    memory_free: numberField(fields, "memory_free") ?? 0,
    sandboxes: numberField(fields, "sandboxes") ?? 0,
    max_sandboxes: numberField(fields, "max_sandboxes") ?? 0,
    has_image: booleanField(fields, "has_image"),
  };
}

export class Api {
  readonly #request: Request;
  readonly #keys = new WorkKeys();

  constructor(request: Request) {
    this.#request = request;
  }

  /** Makes something new; asked for again after an answer that was lost, it is the same new thing. */
  async #make(path: string, body: unknown): Promise<Fields> {
    const work = `${path} ${JSON.stringify(body)}`;
    return asFields(await this.#keys.once(work, (key) => this.#request("POST", path, body, undefined, key)));
  }

  /** Asks whether the server accepts a token. Fails with status 401 when it does not. */
  async checkToken(token: string): Promise<void> {
    await this.#request("GET", "/api/conversations?limit=1", undefined, token);
  }

  async config(): Promise<ServerConfig> {
    const fields = asFields(await this.#request("GET", "/api/options/config"));
    const drydock = objectField(fields, "DRYDOCK");
    const mode = stringField(fields, "APP_MODE") || "oss";
    return drydock === null ? { APP_MODE: mode } : { APP_MODE: mode, DRYDOCK: toDrydockInfo(drydock) };
  }

  async models(): Promise<readonly string[]> {
    const value = await this.#request("GET", "/api/options/models");
    return stringListField({ value }, "value");
  }

  /** The stored settings, or null when nothing is stored yet. */
  async settings(): Promise<Settings | null> {
    try {
      return toSettings(asFields(await this.#request("GET", "/api/settings")));
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return null;
      throw error;
    }
  }

  /** Stores a change. All known settings are sent along, since a server may replace rather than merge. */
  async saveSettings(stored: Settings | null, change: SettingsChange): Promise<void> {
    const kept = Object.fromEntries(
      Object.entries(stored ?? {}).filter(([name, value]) => value !== null && !READ_ONLY_SETTINGS.includes(name)),
    );
    await this.#request("POST", "/api/settings", { ...kept, ...change });
  }

  /** The user's own secrets, without their values. */
  async secrets(): Promise<readonly SecretName[]> {
    const fields = asFields(await this.#request("GET", "/api/secrets"));
    return listField(fields, "custom_secrets")
      .map(asFields)
      .map((secret) => ({ name: stringField(secret, "name"), description: stringField(secret, "description") }));
  }

  async createSecret(secret: SecretName & { readonly value: string }): Promise<void> {
    await this.#request("POST", "/api/secrets", secret);
  }

  async deleteSecret(name: string): Promise<void> {
    await this.#request("DELETE", `/api/secrets/${encodeURIComponent(name)}`);
  }

  /** The MCP servers that the user signs in to. */
  async mcpSignIns(): Promise<readonly McpSignIn[]> {
    const fields = asFields(await this.#request("GET", "/api/mcp-sign-ins"));
    return listField(fields, "results")
      .map(asFields)
      .map((one) => ({
        id: stringField(one, "id"),
        server: stringField(one, "server"),
        state: toSignInState(stringField(one, "state")),
        scope: nullable(one, "scope"),
      }));
  }

  /** Begins a sign-in; returns the address of the page that goes on with it. */
  async beginMcpSignIn(id: string, conversationId: string | null): Promise<string> {
    const body = { conversation_id: conversationId };
    return stringField(asFields(await this.#request("POST", `/api/mcp-sign-ins/${encodeURIComponent(id)}`, body)), "url");
  }

  /** Signs out; returns why that was not told where it was signed in, which is empty where all is well. */
  async endMcpSignIn(id: string): Promise<string> {
    return stringField(asFields(await this.#request("DELETE", `/api/mcp-sign-ins/${encodeURIComponent(id)}`)), "message");
  }

  /** The machines that sandboxes run on, where there are several. */
  async dockerHosts(): Promise<readonly DockerHost[]> {
    const fields = asFields(await this.#request("GET", "/api/docker-hosts"));
    return listField(fields, "results").map(asFields).map(toDockerHost);
  }

  /** Has a machine take no new sandboxes, or take new ones again. */
  async drainDockerHost(name: string, draining: boolean): Promise<void> {
    await this.#request("PATCH", `/api/docker-hosts/${encodeURIComponent(name)}`, { draining });
  }

  /** A page of them, of those alone that have `text` in their titles, repositories or ids, if there is any. */
  async conversations(limit: number, pageId: string | null, text = ""): Promise<ConversationPage> {
    const query = new URLSearchParams({ limit: String(limit) });
    if (pageId !== null) query.set("page_id", pageId);
    if (text !== "") query.set("query", text);
    const fields = asFields(await this.#request("GET", `/api/conversations?${query.toString()}`));
    return {
      results: listField(fields, "results").map(toConversation),
      next_page_id: nullable(fields, "next_page_id"),
    };
  }

  /** What listens in the conversation's sandbox, with the addresses of its previews. */
  async ports(id: string): Promise<Ports> {
    return toPorts(await this.#request("GET", `/api/conversations/${encodeURIComponent(id)}/ports`));
  }

  /** Creates a conversation, with a repository if one is named; its agent starts on the message at once. */
  async createConversation(initialMessage: string | null, start: StartingPoint | null = null): Promise<ConversationCreated> {
    const body = {
      ...(initialMessage === null ? {} : { initial_user_msg: initialMessage }),
      ...(start === null ? {} : { repository: start.repository }),
      ...(start === null || start.branch === "" ? {} : { selected_branch: start.branch }),
    };
    const fields = await this.#make("/api/conversations", body);
    return {
      conversation_id: stringField(fields, "conversation_id"),
      conversation_status: toStatus(stringField(fields, "conversation_status")),
    };
  }

  /** One conversation, or null when the server knows none of that id. */
  async conversation(id: string): Promise<ConversationInfo | null> {
    try {
      const value = await this.#request("GET", conversationPath(id));
      return value === null ? null : toConversation(value);
    } catch (error) {
      if (error instanceof ApiError && (error.status === 404 || error.status === 400)) return null;
      throw error;
    }
  }

  async renameConversation(id: string, title: string): Promise<void> {
    await this.#request("PATCH", conversationPath(id), { title });
  }

  async deleteConversation(id: string): Promise<void> {
    await this.#request("DELETE", conversationPath(id));
  }

  async startConversation(id: string): Promise<void> {
    await this.#request("POST", `${conversationPath(id)}/start`, { providers_set: [] });
  }

  async stopConversation(id: string): Promise<void> {
    await this.#request("POST", `${conversationPath(id)}/stop`);
  }

  /** Has the conversation go on behind this event (null: from its beginning), with the files as they were then. */
  async rewind(id: string, eventId: number | null): Promise<void> {
    await this.#request("POST", `${conversationPath(id)}/rewind`, { event_id: eventId });
  }

  /** Makes a conversation that begins like this one up to this event; returns its id. */
  async fork(id: string, eventId: number): Promise<string> {
    return stringField(await this.#make(`${conversationPath(id)}/fork`, { event_id: eventId }), "conversation_id");
  }

  /** The whole log in the form in which it can be imported again. */
  async recording(id: string): Promise<readonly unknown[]> {
    return listField(asFields(await this.#request("GET", `${conversationPath(id)}/trajectory`)), "trajectory");
  }

  /** Makes a conversation of a recorded one; returns its id. */
  async importRecording(recording: unknown): Promise<string> {
    return stringField(await this.#make("/api/conversations/import", recording), "conversation_id");
  }

  async events(id: string, query: EventQuery): Promise<EventPage> {
    const parameters = new URLSearchParams({ limit: String(query.limit) });
    if (query.startId !== undefined) parameters.set("start_id", String(query.startId));
    if (query.endId !== undefined) parameters.set("end_id", String(query.endId));
    if (query.reverse === true) parameters.set("reverse", "true");
    const fields = asFields(await this.#request("GET", `${conversationPath(id)}/events?${parameters.toString()}`));
    return { events: listField(fields, "events"), has_more: booleanField(fields, "has_more") };
  }
}

function toSignInState(text: string): McpSignIn["state"] {
  return text === "signed_in" || text === "wanted" ? text : "unknown";
}

function conversationPath(id: string): string {
  return `/api/conversations/${encodeURIComponent(id)}`;
}
