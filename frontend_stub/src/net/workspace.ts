/** The files and repositories of a conversation's workspace. */
import type { Fields } from "../protocol/events";
import { booleanField, numberField, objectField, objectListField, stringField, stringListField } from "../protocol/fields";
import { ApiError, fetchFromServer } from "./http";
import type { Fetcher, Request } from "./http";
import type { TokenKeeper } from "./token";

export interface FolderEntry {
  readonly name: string;
  readonly kind: "file" | "folder" | "other";
  readonly link: boolean;
  readonly hidden: boolean;
  readonly size: number | null;
}

export interface Folder {
  readonly entries: readonly FolderEntry[];
  readonly leftOut: number;
}

export interface Change {
  readonly status: string;
  readonly path: string;
}

/** What the files are compared with: the last commit, or where the branch was begun. */
export type Since = "commit" | "base";

export interface Repository {
  readonly path: string;
  /** The branch that this one was begun from; empty where there is none. */
  readonly base: string;
  readonly branch: string;
  readonly head: string;
  readonly upstream: string;
  readonly ahead: number;
  readonly behind: number;
  readonly changes: readonly Change[];
  readonly leftOut: number;
}

export interface Commit {
  readonly hash: string;
  readonly author: string;
  readonly date: string;
  readonly subject: string;
  readonly body: string;
  readonly refs: readonly string[];
}

export interface History {
  readonly commits: readonly Commit[];
  readonly hasMore: boolean;
}

export interface Versions {
  readonly original: string;
  readonly modified: string;
}

export interface Uploaded {
  readonly stored: readonly string[];
  readonly skipped: readonly { readonly name: string; readonly reason: string }[];
}

/** A file with the path that it is to have. */
export interface NamedFile {
  readonly path: string;
  readonly file: File;
}

function asFields(value: unknown): Fields {
  return objectField({ value }, "value") ?? {};
}

function toEntry(fields: Fields): FolderEntry {
  const kind = stringField(fields, "kind");
  return {
    name: stringField(fields, "name"),
    kind: kind === "file" || kind === "folder" ? kind : "other",
    link: booleanField(fields, "link"),
    hidden: booleanField(fields, "hidden"),
    size: numberField(fields, "size"),
  };
}

function toRepository(fields: Fields): Repository {
  return {
    path: stringField(fields, "path"),
    base: stringField(objectField(fields, "base") ?? {}, "name"),
    branch: stringField(fields, "branch"),
    head: stringField(fields, "head"),
    upstream: stringField(fields, "upstream"),
    ahead: numberField(fields, "ahead") ?? 0,
    behind: numberField(fields, "behind") ?? 0,
    changes: objectListField(fields, "changes").map((one) => ({ status: stringField(one, "status"), path: stringField(one, "path") })),
    leftOut: numberField(fields, "left_out") ?? 0,
  };
}

function toCommit(fields: Fields): Commit {
  return {
    hash: stringField(fields, "hash"),
    author: stringField(fields, "author"),
    date: stringField(fields, "date"),
    subject: stringField(fields, "subject"),
    body: stringField(fields, "body"),
    refs: stringListField(fields, "refs"),
  };
}

export class WorkspaceApi {
  readonly #request: Request;
  readonly #keeper: TokenKeeper;
  readonly #fetch: Fetcher;

  constructor(request: Request, keeper: TokenKeeper, fetcher: Fetcher = fetchFromServer) {
    this.#request = request;
    this.#keeper = keeper;
    this.#fetch = fetcher;
  }

  async folder(id: string, path: string): Promise<Folder> {
    const fields = asFields(await this.#request("GET", address(id, "files", { path })));
    return { entries: objectListField(fields, "entries").map(toEntry), leftOut: numberField(fields, "left_out") ?? 0 };
  }

  async text(id: string, path: string): Promise<string> {
    return stringField(asFields(await this.#request("GET", address(id, "select-file", { file: path }))), "code");
  }

  /** The repositories; none where the workspace has none. */
  async repositories(id: string, since: Since = "commit"): Promise<readonly Repository[]> {
    try {
      const fields = asFields(await this.#request("GET", address(id, "git/status", compared(since))));
      return objectListField(fields, "repositories").map(toRepository);
    } catch (error) {
      if (error instanceof ApiError && error.status === 404) return [];
      throw error;
    }
  }

  async versions(id: string, path: string, since: Since = "commit"): Promise<Versions> {
    const fields = asFields(await this.#request("GET", address(id, "git/diff", { path, ...compared(since) })));
    return { original: stringField(fields, "original"), modified: stringField(fields, "modified") };
  }

  async history(id: string, repository: string, skip: number): Promise<History> {
    const query = { repository, skip: String(skip), limit: "50" };
    const fields = asFields(await this.#request("GET", address(id, "git/log", query)));
    return { commits: objectListField(fields, "commits").map(toCommit), hasMore: booleanField(fields, "has_more") };
  }

  async upload(id: string, folder: string, files: readonly NamedFile[]): Promise<Uploaded> {
    const form = new FormData();
    for (const { path, file } of files) form.append("files", file, path);
    const response = await this.#send(address(id, "upload-files", folder === "" ? {} : { path: folder }), {
      method: "POST",
      body: form,
    });
    const fields = asFields(await response.json());
    return {
      stored: stringListField(fields, "uploaded_files"),
      skipped: objectListField(fields, "skipped_files").map((one) => ({
        name: stringField(one, "name"),
        reason: stringField(one, "reason"),
      })),
    };
  }

  /** A file, or a folder (also the workspace, which has no name) as a ZIP file. */
  async download(id: string, path: string): Promise<Blob> {
    const what = path === "" ? address(id, "zip-directory", {}) : address(id, "download", { path });
    return (await this.#send(what, { method: "GET" })).blob();
  }

  async #send(url: string, init: RequestInit): Promise<Response> {
    const token = this.#keeper.token;
    const headers: Record<string, string> = token === null ? {} : { "X-Session-API-Key": token };
    let response: Response;
    try {
      response = await this.#fetch(url, { ...init, headers });
    } catch {
      throw new ApiError(0, "The server cannot be reached. Is it running?");
    }
    if (response.ok) return response;
    if (response.status === 401) this.#keeper.refuse();
    throw new ApiError(response.status, await reason(response));
  }
}

async function reason(response: Response): Promise<string> {
  const fallback = `The server answered with error ${response.status}.`;
  try {
    const fields = asFields(await response.json());
    return stringField(fields, "error") || stringField(fields, "message") || fallback;
  } catch {
    return fallback;
  }
}

function compared(since: Since): Readonly<Record<string, string>> {
  return since === "commit" ? {} : { since };
}

function address(id: string, what: string, query: Readonly<Record<string, string>>): string {
  const parameters = new URLSearchParams(query).toString();
  return `/api/conversations/${encodeURIComponent(id)}/${what}${parameters === "" ? "" : `?${parameters}`}`;
}
