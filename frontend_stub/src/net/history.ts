/** Loads a conversation's history backwards, a page at a time. */
import { frameId, parseFrame } from "../protocol/frames";
import type { Frame } from "../protocol/frames";
import type { ModelAction } from "../state/model";
import type { Api } from "./api";
import { errorText } from "./http";

/** The most that the server gives at once. */
const PAGE_SIZE = 100;

export class HistoryLoader {
  readonly #id: string;
  readonly #api: Api;
  readonly #dispatch: (action: ModelAction) => void;
  /** Id of the oldest event loaded: the next older page ends before it. */
  #oldestId = Number.MAX_SAFE_INTEGER;
  #hasMore = false;
  #loading = false;

  constructor(id: string, api: Api, dispatch: (action: ModelAction) => void) {
    this.#id = id;
    this.#api = api;
    this.#dispatch = dispatch;
  }

  async loadNewest(): Promise<void> {
    try {
      await this.#loadPage(null);
    } catch {
      // The line then replays everything from the start: slower for a long history, but the same to see.
      this.#dispatch({ type: "history", events: [], hasMore: false });
    }
  }

  /** Loads the page before the oldest one, unless that is being done or there is none. */
  async loadOlder(): Promise<void> {
    if (!this.#hasMore || this.#loading || this.#oldestId <= 0) return;
    this.#loading = true;
    this.#dispatch({ type: "older-loading" });
    try {
      await this.#loadPage(this.#oldestId - 1);
    } catch (error) {
      this.#dispatch({ type: "older-failed" });
      this.#dispatch({ type: "notice", level: "error", text: `Older history could not be loaded. ${errorText(error)}` });
    } finally {
      this.#loading = false;
    }
  }

  async #loadPage(endId: number | null): Promise<void> {
    const page = await this.#api.events(this.#id, {
      reverse: true,
      limit: PAGE_SIZE,
      ...(endId === null ? {} : { endId }),
    });
    const frames = page.events.map(parseFrame).filter((frame): frame is Frame => frame !== null);
    const ids = frames.map(frameId).filter((id) => id >= 0);
    this.#oldestId = Math.min(this.#oldestId, ...ids);
    this.#hasMore = page.has_more && ids.length > 0;
    this.#dispatch({ type: "history", events: frames, hasMore: this.#hasMore });
  }
}
