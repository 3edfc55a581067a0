/** The one access token of a server in one-token mode: where it is kept, and whether one is asked for. */
import { Cell } from "../state/store";

const STORAGE_KEY = "drydock.token";

function readStored(storage: Storage): string | null {
  const value = storage.getItem(STORAGE_KEY);
  return value === null || value === "" ? null : value;
}

export class TokenKeeper {
  /** True while the server refuses us and the login screen must be shown. */
  readonly loginNeeded = new Cell(false);
  #token: string | null;

  constructor() {
    this.#token = readStored(window.sessionStorage) ?? readStored(window.localStorage);
  }

  get token(): string | null {
    return this.#token;
  }

  /** Keeps a token for this tab, or on this device with `remember`. */
  accept(token: string, options: { readonly remember: boolean }): void {
    this.#token = token;
    window.sessionStorage.removeItem(STORAGE_KEY);
    window.localStorage.removeItem(STORAGE_KEY);
    (options.remember ? window.localStorage : window.sessionStorage).setItem(STORAGE_KEY, token);
    this.loginNeeded.set(false);
  }

  /** The server refused the token (or that there is none). */
  refuse(): void {
    this.loginNeeded.set(true);
  }

  forget(): void {
    this.#token = null;
    window.sessionStorage.removeItem(STORAGE_KEY);
    window.localStorage.removeItem(STORAGE_KEY);
    this.loginNeeded.set(true);
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
    this.accept(token, { remember: false });
  }
}
