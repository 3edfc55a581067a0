/**
 * What the browser keeps for this page.
 *
 * Storage may be forbidden, full, or hold what an older version left. None of that is an error: what cannot be stored is
 * remembered as long as the page lives and forgotten with it. Whoever reads judges by itself whether a text is of use.
 */
export class Shelf {
  readonly #find: () => Storage;
  /** What the browser did not take. */
  readonly #unstored = new Map<string, string>();

  /** `find` may throw: where storage is forbidden, looking at it does already. */
  constructor(find: () => Storage) {
    this.#find = find;
  }

  read(key: string): string | null {
    return this.#unstored.get(key) ?? this.#attempt((storage) => storage.getItem(key));
  }

  write(key: string, text: string): void {
    this.#unstored.set(key, text);
    this.#attempt((storage) => {
      storage.setItem(key, text);
      this.#unstored.delete(key);
    });
  }

  remove(key: string): void {
    this.#unstored.delete(key);
    this.#attempt((storage) => {
      storage.removeItem(key);
    });
  }

  #attempt<T>(step: (storage: Storage) => T): T | null {
    try {
      return step(this.#find());
    } catch {
      return null;
    }
  }
}

/** Kept for this tab, also over a reload. */
export const tabShelf = new Shelf(() => window.sessionStorage);

/** Kept on this device. */
export const deviceShelf = new Shelf(() => window.localStorage);
