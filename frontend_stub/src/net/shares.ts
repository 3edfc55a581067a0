/** The REST routes of sharing; loaded where somebody shares, or comes by a link. */
import { listField, objectField, stringField } from "../protocol/fields";
import type { Fields } from "../protocol/events";
import type { Request } from "./http";

export type Access = "read" | "write";

export interface Share {
  readonly id: string;
  /** Empty: a link. */
  readonly user: string;
  readonly access: Access;
  /** Empty: it does not end by itself. */
  readonly expiresAt: string;
  readonly hasEnded: boolean;
}

function asFields(value: unknown): Fields {
  return objectField({ value }, "value") ?? {};
}

function toAccess(fields: Fields): Access {
  return stringField(fields, "access") === "write" ? "write" : "read";
}

export class SharesApi {
  readonly #request: Request;

  constructor(request: Request) {
    this.#request = request;
  }

  async list(conversation: string): Promise<readonly Share[]> {
    const found = asFields(await this.#request("GET", `/api/conversations/${encodeURIComponent(conversation)}/shares`));
    return listField(found, "results").map(asFields).map((one) => ({
      id: stringField(one, "share_id"),
      user: stringField(one, "user"),
      access: toAccess(one),
      expiresAt: stringField(one, "expires_at"),
      hasEnded: one.has_ended === true,
    }));
  }

  /** Shares it; returns the whole address for whoever is to have it. Without a `user` a link is made. */
  async share(conversation: string, access: Access, seconds: number | null, user: string): Promise<string> {
    const body = { access, expires_in: seconds, ...(user === "" ? {} : { user }) };
    const path = `/api/conversations/${encodeURIComponent(conversation)}/shares`;
    return window.location.origin + stringField(asFields(await this.#request("POST", path, body)), "path");
  }

  async takeBack(conversation: string, share: string): Promise<void> {
    await this.#request(
      "DELETE",
      `/api/conversations/${encodeURIComponent(conversation)}/shares/${encodeURIComponent(share)}`,
    );
  }

  /** Has the browser let in by a link; returns the conversation that it opens. */
  async open(token: string): Promise<string> {
    return stringField(asFields(await this.#request("POST", "/api/shared", undefined, token)), "conversation_id");
  }
}
