/** Idempotency keys: the same work asked for again under its key is not done twice. */
import { ApiError } from "./http";

const KEY_BYTES = 16;

/** A key that nobody else makes. `crypto.randomUUID` is only there on secure origins. */
export function newKey(): string {
  const bytes = window.crypto.getRandomValues(new Uint8Array(KEY_BYTES));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Whether it is open what became of the work: no answer came, not the server's own, or it is still at it. */
function isOpen(error: unknown): boolean {
  return error instanceof ApiError && [0, 409, 429, 502, 503, 504].includes(error.status);
}

/** Keeps the key of what was asked for last until its answer is known: asked for again, it is the same work. */
export class WorkKeys {
  #last: { readonly work: string; readonly key: string } | null = null;

  async once<T>(work: string, ask: (key: string) => Promise<T>): Promise<T> {
    const { key } = (this.#last = this.#last?.work === work ? this.#last : { work, key: newKey() });
    try {
      const answer = await ask(key);
      this.#forget(key);
      return answer;
    } catch (error) {
      if (!isOpen(error)) this.#forget(key);
      throw error;
    }
  }

  #forget(key: string): void {
    if (this.#last?.key === key) this.#last = null;
  }
}
