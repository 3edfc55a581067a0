/** The one access token of a server in one-token mode: where it is kept, and whether one is asked for. */
import { Cell } from "../state/store";
import { BASE_PATH } from "./base-path";
import { deviceShelf, tabShelf } from "./storage";
import type { Shelf } from "./storage";

/** Each server has its own: several may stand below one origin. */
const STORAGE_KEY = `${BASE_PATH}drydock.token`;

/** Whether a header can carry it; a browser refuses to send any other text. */
export function isToken(text: string): boolean {
  try {
    return text !== "" && new Headers({ "X-Session-API-Key": text }).get("X-Session-API-Key") === text;
  } catch {
    return false;
  }
}

function readStored(shelf: Shelf): string | null {
  const value = shelf.read(STORAGE_KEY);
  return value !== null && isToken(value) ? value : null;
}

/** Takes the one-time link out of a `/welcome#link=…` address, and out of the address bar, so that it is in no history. */
export function takeLink(): string {
  const link = /(?:^#|&)link=([^&]+)/.exec(window.location.hash)?.[1] ?? "";
  if (link !== "") window.history.replaceState(window.history.state, "", window.location.pathname);
  return link;
}

/** Takes the token of a link out of a `/shared#share_…` address, and out of the address bar, so that it is in no history. */
export function takeShare(): string {
  const token = /^#(share_[\w-]+)$/.exec(window.location.hash)?.[1] ?? "";
  if (token !== "") window.history.replaceState(window.history.state, "", window.location.pathname);
  return token;
}

export class TokenKeeper {
  /** True while the server refuses us and the login screen must be shown. */
  readonly loginNeeded = new Cell(false);
  /** Whether the server asks for a name and a password instead. */
  readonly withAccounts = new Cell(false);
  /** Whether an OpenID provider may say who somebody is, too. */
  readonly byProvider = new Cell(false);
  #token: string | null;

  constructor() {
    this.#token = readStored(tabShelf) ?? readStored(deviceShelf);
  }

  get token(): string | null {
    return this.#token;
  }

  /** Keeps a token for this tab, or on this device with `remember`. */
  accept(token: string, options: { readonly remember: boolean }): void {
    this.#token = token;
    tabShelf.remove(STORAGE_KEY);
    deviceShelf.remove(STORAGE_KEY);
    (options.remember ? deviceShelf : tabShelf).write(STORAGE_KEY, token);
    this.loginNeeded.set(false);
  }

  /** The server refused the token (or that there is none), and said by what one signs in if users have accounts. */
  refuse(ways?: readonly unknown[]): void {
    if (ways !== undefined) {
      this.withAccounts.set(true);
      this.byProvider.set(ways.includes("oidc"));
    }
    this.loginNeeded.set(true);
  }

  forget(): void {
    this.drop();
    this.loginNeeded.set(true);
  }

  /** Keeps no token any more. */
  drop(): void {
    this.#token = null;
    tabShelf.remove(STORAGE_KEY);
    deviceShelf.remove(STORAGE_KEY);
  }

  /** Takes the token out of a `#token=…` address, and out of the address bar, so that it is in no history. */
  takeFromAddress(): void {
    const match = /(?:^#|&)token=([^&]+)/.exec(window.location.hash);
    if (match?.[1] === undefined) return;
    window.history.replaceState(window.history.state, "", window.location.pathname + window.location.search);
    let token: string;
    try {
      token = decodeURIComponent(match[1]);
    } catch {
      token = match[1];
    }
    if (isToken(token)) this.accept(token, { remember: false });
  }
}
