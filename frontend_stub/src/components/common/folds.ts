/** Which cards are open. Kept outside the cards, since a card that is scrolled away is taken down. */
import { createContext, useContext, useSyncExternalStore } from "react";

export class Folds {
  readonly #open = new Map<string, boolean>();
  readonly #listeners = new Set<() => void>();
  #changes = 0;

  /** How often anything was opened or closed. */
  readonly changes = (): number => this.#changes;

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };

  isOpen(key: string, fallback: boolean): boolean {
    return this.#open.get(key) ?? fallback;
  }

  set(key: string, open: boolean): void {
    this.#open.set(key, open);
    this.#changes += 1;
    for (const listener of this.#listeners) listener();
  }
}

export const FoldsContext = createContext(new Folds());

/** The row that something stands in: what it folds is told apart by its place in it. */
export const FoldScope = createContext("");

export function useScopedFold(place: string): readonly [boolean, (open: boolean) => void] {
  return useFold(`${useContext(FoldScope)}:${place}`);
}

/** Whether the card of this key is open, and the way to change that. */
export function useFold(key: string, initiallyOpen = false): readonly [boolean, (open: boolean) => void] {
  const folds = useContext(FoldsContext);
  const open = useSyncExternalStore(folds.subscribe, () => folds.isOpen(key, initiallyOpen));
  return [
    open,
    (next) => {
      folds.set(key, next);
    },
  ];
}
