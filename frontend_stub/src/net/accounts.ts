/** The REST routes of a server whose users have accounts; loaded where they are. */
import { listField, objectField, stringField, stringListField } from "../protocol/fields";
import type { Fields } from "../protocol/events";
import type { Request } from "./http";

export interface AccessToken {
  readonly id: string;
  readonly name: string;
  readonly scopes: readonly string[];
  readonly expiresAt: string;
  readonly usedAt: string;
}

export interface SignIn {
  readonly id: string;
  readonly address: string;
  readonly browser: string;
  readonly usedAt: string;
  readonly current: boolean;
}

/** What a link is for: a new password of `name`, or, where that is empty, a new user. */
export interface LinkPurpose {
  readonly name: string;
  readonly role: string;
}

export const ROLES = ["user", "viewer", "administrator"] as const;

export interface Person {
  readonly name: string;
  readonly email: string;
  readonly role: string;
  readonly disabled: boolean;
  readonly pending: boolean;
}

function asFields(value: unknown): Fields {
  return objectField({ value }, "value") ?? {};
}

function results(value: unknown): readonly Fields[] {
  return listField(asFields(value), "results").map(asFields);
}

function toPerson(one: Fields): Person {
  return {
    name: stringField(one, "name"),
    email: stringField(one, "email"),
    role: stringField(one, "role"),
    disabled: one.disabled === true,
    pending: one.pending === true,
  };
}

/** The whole address of a link, for whoever is to have it. */
function addressOf(value: unknown): string {
  return window.location.origin + stringField(asFields(value), "path");
}

export class AccountsApi {
  readonly #request: Request;

  constructor(request: Request) {
    this.#request = request;
  }

  async signIn(name: string, password: string): Promise<void> {
    await this.#request("POST", "/api/auth/sign-in", { name, password });
  }

  async signOut(): Promise<void> {
    await this.#request("POST", "/api/auth/sign-out");
  }

  async purpose(link: string): Promise<LinkPurpose> {
    const fields = asFields(await this.#request("POST", "/api/auth/link", { link }));
    return { name: stringField(fields, "name"), role: stringField(fields, "role") };
  }

  async useLink(link: string, name: string, password: string): Promise<void> {
    await this.#request("POST", "/api/auth/link/use", { link, name, password });
  }

  async changePassword(current: string, password: string): Promise<void> {
    await this.#request("POST", "/api/auth/password", { current, password });
  }

  async signIns(): Promise<readonly SignIn[]> {
    return results(await this.#request("GET", "/api/auth/sign-ins")).map((one) => ({
      id: stringField(one, "id"),
      address: stringField(one, "address"),
      browser: stringField(one, "browser"),
      usedAt: stringField(one, "used_at"),
      current: one.current === true,
    }));
  }

  async endSignIn(id: string): Promise<void> {
    await this.#request("DELETE", `/api/auth/sign-ins/${encodeURIComponent(id)}`);
  }

  async tokens(): Promise<readonly AccessToken[]> {
    return results(await this.#request("GET", "/api/auth/tokens")).map((one) => ({
      id: stringField(one, "id"),
      name: stringField(one, "name"),
      scopes: stringListField(one, "scopes"),
      expiresAt: stringField(one, "expires_at"),
      usedAt: stringField(one, "used_at"),
    }));
  }

  /** Makes a token; returns what it is shown by, which is told this once. */
  async makeToken(name: string, scopes: readonly string[], days: number | null): Promise<string> {
    const body = { name, scopes, expires_in_days: days };
    return stringField(asFields(await this.#request("POST", "/api/auth/tokens", body)), "token");
  }

  async revokeToken(id: string): Promise<void> {
    await this.#request("DELETE", `/api/auth/tokens/${encodeURIComponent(id)}`);
  }

  async people(): Promise<readonly Person[]> {
    return results(await this.#request("GET", "/api/admin/users")).map(toPerson);
  }

  /** Adds a user; returns the address where they choose a password. */
  async addPerson(name: string, role: string): Promise<string> {
    return addressOf(await this.#request("POST", "/api/admin/users", { name, role }));
  }

  async changePerson(name: string, change: { readonly role?: string; readonly disabled?: boolean }): Promise<void> {
    await this.#request("PATCH", `/api/admin/users/${encodeURIComponent(name)}`, change);
  }

  /** The address where a user chooses another password. */
  async resetPerson(name: string): Promise<string> {
    return addressOf(await this.#request("POST", `/api/admin/users/${encodeURIComponent(name)}/reset`));
  }
}
