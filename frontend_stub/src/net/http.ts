/** One way to call the API: the token goes along, and every failure becomes an ApiError with a message for people. */
import { BASE_PATH } from "./base-path";
import { objectField, stringField } from "../protocol/fields";
import type { Fields } from "../protocol/events";
import type { TokenKeeper } from "./token";

const PASSING: ReadonlySet<number> = new Set([0, 429, 502, 503, 504, 507]);

export class ApiError extends Error {
  /** HTTP status; 0 when no answer came. */
  readonly status: number;
  readonly messageId: string;
  /** What is wrong with which field of what was sent, by the field's name. */
  readonly fields: ReadonlyMap<string, string>;

  constructor(status: number, message: string, messageId = "", fields: ReadonlyMap<string, string> = new Map()) {
    super(message);
    this.fields = fields;
    this.name = "ApiError";
    this.status = status;
    this.messageId = messageId;
  }
}

const TIMEOUT_MILLISECONDS = 30_000;

export type Method = "GET" | "POST" | "PATCH" | "DELETE";

/** A `token` given here is tried instead of the one that is kept; under a `key` the same is not done twice. */
export type Request = (method: Method, path: string, body?: unknown, token?: string, key?: string) => Promise<unknown>;

function describeDetail(detail: unknown): string {
  if (typeof detail === "string") return detail;
  if (!Array.isArray(detail)) return "";
  // Validation errors: each names a field and what is wrong with it.
  return (detail as readonly unknown[])
    .filter((entry): entry is Fields => typeof entry === "object" && entry !== null)
    .map((entry) => {
      const place = Array.isArray(entry.loc) ? (entry.loc as unknown[]).slice(1).join(".") : "";
      return place === "" ? stringField(entry, "msg") : `${place}: ${stringField(entry, "msg")}`;
    })
    .join("; ");
}

/** The problems of a refused body, by the names of its fields; several with one field are told together. */
function problemsOf(detail: unknown): ReadonlyMap<string, string> {
  const problems = new Map<string, string>();
  for (const value of Array.isArray(detail) ? (detail as readonly unknown[]) : []) {
    const entry = objectField({ value }, "value") ?? {};
    const [place, name] = Array.isArray(entry.loc) ? (entry.loc as readonly unknown[]) : [];
    if (place !== "body" || typeof name !== "string") continue;
    const told = stringField(entry, "msg").replace(/^Value error, /, "");
    const text = told.startsWith(`${name}: `) ? told.slice(name.length + 2) : told;
    if (text === "") continue;
    problems.set(name, problems.has(name) ? `${problems.get(name) ?? ""} ${text}` : text);
  }
  return problems;
}

function failure(status: number, body: unknown): ApiError {
  if (typeof body === "string" && body !== "") return new ApiError(status, body);
  const fields = objectField({ body }, "body") ?? {};
  const message = stringField(fields, "error") || stringField(fields, "message") || describeDetail(fields.detail);
  const fallback =
    status === 429 ? "The server asks for a little patience: too many requests." : `The server answered with error ${status}.`;
  return new ApiError(status, message || fallback, stringField(fields, "msg_id"), problemsOf(fields.detail));
}

function parsed(text: string, response: Response): unknown {
  if (text === "") return null;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    // Not JSON: an error page of something between us and the server. It is nothing to show.
    return response.ok ? null : "";
  }
}

/** The part of the browser's fetch that is used. */
export type Fetcher = (url: string, init: RequestInit) => Promise<Response>;

const MAX_KEPT = 30;
const MAX_KEPT_CHARACTERS = 64 * 1024;

interface Kept {
  readonly tag: string;
  readonly token: string | undefined;
  readonly answer: unknown;
}

/** The last answers to what is asked again and again: the server says in a few bytes that one of them still holds. */
class Answers {
  readonly #kept = new Map<string, Kept>();

  find(path: string, token: string | undefined): Kept | undefined {
    const kept = this.#kept.get(path);
    return kept?.token === token ? kept : undefined;
  }

  keep(path: string, text: string, kept: Kept): void {
    this.#kept.delete(path);
    if (text.length > MAX_KEPT_CHARACTERS) return;
    this.#kept.set(path, kept);
    const oldest = this.#kept.keys().next().value;
    if (this.#kept.size > MAX_KEPT && oldest !== undefined) this.#kept.delete(oldest);
  }
}

const AGAIN_AFTER_MILLISECONDS = 300;

/**
 * Fetches from an address of the server, which is found below the base path.
 *
 * What only reads, or has a key of its own, is asked once more where the browser got no connection: it breaks off all
 * that it is just making whenever the network of its machine changes, as each sandbox does that starts there.
 */
export const fetchFromServer: Fetcher = async (path, init) => {
  const ask = () => window.fetch(BASE_PATH + path, init);
  try {
    return await ask();
  } catch (error) {
    const mayRepeat = (init.method ?? "GET") === "GET" || new Headers(init.headers).has("Idempotency-Key");
    if (!mayRepeat || !(error instanceof TypeError)) throw error;
    await new Promise((resolve) => setTimeout(resolve, AGAIN_AFTER_MILLISECONDS));
    return ask();
  }
};

export function createRequest(keeper: TokenKeeper, fetcher: Fetcher = fetchFromServer): Request {
  const answers = new Answers();
  return async (method, path, body, token = keeper.token ?? undefined, key) => {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (token !== undefined) headers["X-Session-API-Key"] = token;
    if (key !== undefined) headers["Idempotency-Key"] = key;
    const kept = method === "GET" ? answers.find(path, token) : undefined;
    if (kept !== undefined) headers["If-None-Match"] = kept.tag;
    let response: Response;
    try {
      response = await fetcher(path, {
        method,
        headers,
        signal: AbortSignal.timeout(TIMEOUT_MILLISECONDS),
        ...(body === undefined ? {} : { body: JSON.stringify(body) }),
      });
    } catch (error) {
      const timedOut = error instanceof DOMException && error.name === "TimeoutError";
      throw new ApiError(
        0,
        timedOut ? "The server took too long to answer." : "The server cannot be reached. Is it running?",
      );
    }
    if (response.status === 304 && kept !== undefined) return kept.answer;
    const text = await response.text();
    const answer = parsed(text, response);
    const tag = response.headers.get("etag");
    if (method === "GET" && response.ok && tag !== null) answers.keep(path, text, { tag, token, answer });
    if (response.ok) return answer;
    // A sentence by itself is the word of a git provider, which refused another token than ours.
    if (response.status === 401 && (typeof answer !== "string" || answer === "")) {
      const ways: unknown = objectField({ answer }, "answer")?.sign_in;
      keeper.refuse(Array.isArray(ways) ? ways : undefined);
    }
    throw failure(response.status, answer);
  };
}

/** Whether the same may be taken in a moment: no answer, too many requests, or a server that lacks something for now. */
export function passes(error: unknown): boolean {
  return error instanceof ApiError && PASSING.has(error.status);
}

/** What to tell of something that was to be stored: that it is not, or that nobody knows; and why. */
export function refusalOf(what: string, error: unknown): string {
  const why = errorText(error);
  if (why.includes("could not be stored")) return why;
  const isOpen = error instanceof ApiError && error.status === 0;
  const state = isOpen ? `It is not known whether ${what.charAt(0).toLowerCase()}${what.slice(1)} could be stored.` : `${what} could not be stored.`;
  return `${state} ${why}`;
}

/** The sentence to show for anything that was thrown. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
