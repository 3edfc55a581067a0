/** Keeps the facts of one conversation fresh: often while it starts, now and then afterwards. */
import type { SessionView } from "./session-view";
import type { Api } from "./api";
import { ApiError } from "./http";

const STARTING_MILLISECONDS = 1_000;
const STARTING_LATER_MILLISECONDS = 3_000;
const USUAL_MILLISECONDS = 30_000;
const FAST_POLLS = 10;

export class InfoWatch {
  readonly #api: Api;
  readonly #view: SessionView;
  readonly #onInfo: () => void;
  readonly #afterPoll: () => void;
  #timer: number | undefined;
  #startingPolls = 0;

  /** `onInfo` is told of all facts, `afterPoll` when a poll of its own is over. */
  constructor(api: Api, view: SessionView, onInfo: () => void, afterPoll: () => void) {
    this.#api = api;
    this.#view = view;
    this.#onInfo = onInfo;
    this.#afterPoll = afterPoll;
  }

  async refresh(): Promise<void> {
    try {
      const info = await this.#api.conversation(this.#view.model.conversationId);
      if (info === null) this.#view.dispatch({ type: "info-state", state: "missing" });
      else this.#view.dispatch({ type: "info", info });
      this.#onInfo();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return;
      this.#view.dispatch({ type: "info-state", state: "failed" });
    }
  }

  /** A start was asked for: its first steps are looked at often again. */
  expectStart(): void {
    this.#startingPolls = 0;
  }

  schedule(): void {
    window.clearTimeout(this.#timer);
    const { info, infoState } = this.#view.model;
    if (this.#view.closed || infoState === "missing") return;
    let delay = infoState === "failed" ? STARTING_LATER_MILLISECONDS : USUAL_MILLISECONDS;
    if (info?.status === "STARTING") {
      this.#startingPolls += 1;
      delay = this.#startingPolls <= FAST_POLLS ? STARTING_MILLISECONDS : STARTING_LATER_MILLISECONDS;
    }
    this.#timer = window.setTimeout(() => {
      void this.#poll();
    }, delay);
  }

  close(): void {
    window.clearTimeout(this.#timer);
  }

  async #poll(): Promise<void> {
    await this.refresh();
    if (this.#view.closed) return;
    this.#afterPoll();
    this.schedule();
  }
}
