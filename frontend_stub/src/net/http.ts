/** One way to call the API: the token goes along, and every failure becomes an ApiError with a message for people. */
import { objectField, stringField } from "../protocol/fields";
import type { Fields } from "../protocol/events";
import type { TokenKeeper } from "./token";

export class ApiError extends Error {
  /** HTTP status; 0 when no answer came. */
  readonly status: number;
  readonly messageId: string;

  constructor(status: number, message: string, messageId = "") {
    super(message);
    this.name = "ApiError";
    this.status = status;
    this.messageId = messageId;
  }
}

const TIMEOUT_MILLISECONDS = 30_000;

export type Method = "GET" | "POST" | "PATCH" | "DELETE";

/** A `token` given here is tried instead of the one that is kept. */
export type Request = (method: Method, path: string, body?: unknown, token?: string) => Promise<unknown>;

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

function failure(status: number, body: unknown): ApiError {
  if (typeof body === "string" && body !== "") return new ApiError(status, body);
  const fields = objectField({ body }, "body") ?? {};
  const message = stringField(fields, "error") || stringField(fields, "message") || describeDetail(fields.detail);
  const fallback =
    status === 429 ? "The server asks for a little patience: too many requests." : `The server answered with error ${status}.`;
  return new ApiError(status, message || fallback, stringField(fields, "msg_id"));
}

async function readBody(response: Response): Promise<unknown> {
  const text = await response.text();
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

export function createRequest(keeper: TokenKeeper, fetcher: Fetcher = (url, init) => window.fetch(url, init)): Request {
  return async (method, path, body, token = keeper.token ?? undefined) => {
    const headers: Record<string, string> = { Accept: "application/json" };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    if (token !== undefined) headers["X-Session-API-Key"] = token;
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
    const answer = await readBody(response);
    if (response.ok) return answer;
    // A sentence by itself is the word of a git provider, which refused another token than ours.
    if (response.status === 401 && (typeof answer !== "string" || answer === "")) keeper.refuse();
    throw failure(response.status, answer);
  };
}

/** The sentence to show for anything that was thrown. */
export function errorText(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
