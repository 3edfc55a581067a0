/** Keeps the list of conversations in step with the server. */
import { createList, reduceList } from "../state/conversations";
import type { ConversationList, ListAction } from "../state/conversations";
import { ModelStore } from "../state/store";
import type { Schedule } from "../state/store";
import type { Api } from "./api";
import { errorText } from "./http";
import { forgetConversation } from "./kept-messages";

const PAGE_SIZE = 20;
const REFRESH_MILLISECONDS = 15_000;
/** Several changes in a row, such as a start, ask for one refresh. */
const SOON_MILLISECONDS = 400;

export class ConversationsKeeper {
  readonly store: ModelStore<ConversationList, ListAction>;
  readonly #api: Api;
  #timer: number | undefined;
  #soon: number | undefined;

  constructor(api: Api, schedule?: Schedule) {
    this.#api = api;
    this.store = new ModelStore<ConversationList, ListAction>(createList(), reduceList, schedule);
  }

  /** Loads the list and keeps it fresh while the page is looked at. Returns the way to end that. */
  watch(): () => void {
    void this.refresh();
    this.#timer = window.setInterval(this.#refreshIfVisible, REFRESH_MILLISECONDS);
    document.addEventListener("visibilitychange", this.#refreshIfVisible);
    return () => {
      window.clearInterval(this.#timer);
      window.clearTimeout(this.#soon);
      document.removeEventListener("visibilitychange", this.#refreshIfVisible);
    };
  }

  readonly refreshSoon = (): void => {
    window.clearTimeout(this.#soon);
    this.#soon = window.setTimeout(() => {
      void this.refresh();
    }, SOON_MILLISECONDS);
  };

  async refresh(): Promise<void> {
    try {
      this.store.dispatch({ type: "first-page", page: await this.#api.conversations(PAGE_SIZE, null) });
    } catch (error) {
      this.store.dispatch({ type: "failed", error: errorText(error) });
    }
  }

  async loadMore(): Promise<void> {
    const { loading, nextPageId } = this.store.current;
    if (loading || nextPageId === null) return;
    this.store.dispatch({ type: "loading" });
    try {
      this.store.dispatch({ type: "next-page", page: await this.#api.conversations(PAGE_SIZE, nextPageId) });
    } catch (error) {
      this.store.dispatch({ type: "failed", error: errorText(error) });
    }
  }

  /** Shows the new title at once; the old one comes back when the server refuses. */
  async rename(id: string, title: string): Promise<void> {
    this.store.dispatch({ type: "rename", id, title });
    // At once: the field that is closing would show the old name for a moment.
    this.store.flush();
    try {
      await this.#api.renameConversation(id, title);
    } finally {
      this.refreshSoon();
    }
  }

  async remove(id: string): Promise<void> {
    await this.#api.deleteConversation(id);
    forgetConversation(id);
    this.store.dispatch({ type: "remove", id });
    this.refreshSoon();
  }

  readonly #refreshIfVisible = (): void => {
    if (document.visibilityState === "visible") void this.refresh();
  };
}
