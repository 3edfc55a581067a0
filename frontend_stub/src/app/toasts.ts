/** Short messages about something the user just did. */
import { Cell } from "../state/store";

export interface Toast {
  readonly key: number;
  readonly level: "error" | "done";
  readonly text: string;
}

const DONE_MILLISECONDS = 4_000;
const LIMIT = 3;

export class Toasts {
  readonly list = new Cell<readonly Toast[]>([]);
  #count = 0;

  /** Stays until it is dismissed. */
  readonly error = (text: string): void => {
    this.#add("error", text);
  };

  /** Goes away by itself. */
  readonly done = (text: string): void => {
    const key = this.#add("done", text);
    window.setTimeout(() => {
      this.dismiss(key);
    }, DONE_MILLISECONDS);
  };

  readonly dismiss = (key: number): void => {
    this.list.set(this.list.getSnapshot().filter((toast) => toast.key !== key));
  };

  #add(level: Toast["level"], text: string): number {
    this.#count += 1;
    const others = this.list.getSnapshot().filter((toast) => toast.text !== text);
    this.list.set([...others, { key: this.#count, level, text }].slice(-LIMIT));
    return this.#count;
  }
}
