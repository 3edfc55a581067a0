/** A small store: changes are gathered and told once per animation frame. */
import { useSyncExternalStore } from "react";

export interface Readable<Snapshot> {
  readonly subscribe: (listener: () => void) => () => void;
  readonly getSnapshot: () => Snapshot;
}

/** Runs `task` once before the next paint, or soon where nothing is painted. Returns the way to cancel it. */
export type Schedule = (task: () => void) => () => void;

/** A hidden page gets no animation frames, so a timer stands in for them. */
export const scheduleFrame: Schedule = (task) => {
  if (document.visibilityState === "hidden") {
    const timer = window.setTimeout(task, 100);
    return () => {
      window.clearTimeout(timer);
    };
  }
  const frame = window.requestAnimationFrame(task);
  // A page hidden between asking and painting would wait until it is shown again.
  const timer = window.setTimeout(task, 250);
  return () => {
    window.cancelAnimationFrame(frame);
    window.clearTimeout(timer);
  };
};

/**
 * Holds a model that a reducer changes in place. The snapshot is a fresh shallow copy per flush, so its
 * identity tells whether anything changed, and the model itself costs O(1) per change.
 */
export class ModelStore<Model extends object, Action> implements Readable<Model> {
  readonly #model: Model;
  readonly #reduce: (model: Model, action: Action) => void;
  readonly #schedule: Schedule;
  readonly #listeners = new Set<() => void>();
  #snapshot: Model;
  #cancelFlush: (() => void) | null = null;

  constructor(model: Model, reduce: (model: Model, action: Action) => void, schedule: Schedule = scheduleFrame) {
    this.#model = model;
    this.#reduce = reduce;
    this.#schedule = schedule;
    this.#snapshot = { ...model };
  }

  /** The model as it is now, ahead of what is painted. To be read only. */
  get current(): Readonly<Model> {
    return this.#model;
  }

  readonly dispatch = (action: Action): void => {
    this.#reduce(this.#model, action);
    this.#cancelFlush ??= this.#schedule(this.flush);
  };

  readonly flush = (): void => {
    if (this.#cancelFlush === null) return;
    this.#cancelFlush();
    this.#cancelFlush = null;
    this.#snapshot = { ...this.#model };
    for (const listener of this.#listeners) listener();
  };

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };

  readonly getSnapshot = (): Model => this.#snapshot;
}

/** A value that components may watch; a change is told at once. */
export class Cell<Value> implements Readable<Value> {
  readonly #listeners = new Set<() => void>();
  #value: Value;

  constructor(value: Value) {
    this.#value = value;
  }

  readonly set = (value: Value): void => {
    if (Object.is(value, this.#value)) return;
    this.#value = value;
    for (const listener of this.#listeners) listener();
  };

  readonly subscribe = (listener: () => void): (() => void) => {
    this.#listeners.add(listener);
    return () => {
      this.#listeners.delete(listener);
    };
  };

  readonly getSnapshot = (): Value => this.#value;
}

export function useReadable<Snapshot>(readable: Readable<Snapshot>): Snapshot {
  return useSyncExternalStore(readable.subscribe, readable.getSnapshot);
}

/** Watches a part of the snapshot; the part must keep its identity while it is unchanged. */
export function useSelected<Snapshot, Part>(readable: Readable<Snapshot>, select: (snapshot: Snapshot) => Part): Part {
  return useSyncExternalStore(readable.subscribe, () => select(readable.getSnapshot()));
}
