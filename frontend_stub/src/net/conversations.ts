/** Keeps the list of conversations in step with the server. */
import type { ConversationPage } from "../protocol/rest";
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
  #query = "";
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

  /** Lists those alone that have this text in their titles, repositories or ids, and all again without one. */
  async search(query: string): Promise<void> {
    if (query === this.#query) return;
    this.#query = query;
    await this.refresh();
  }

  async refresh(): Promise<void> {
    await this.#load(null, (page, query) => ({ type: "first-page", page, query }));
  }

  async loadMore(): Promise<void> {
    const { loading, nextPageId, query } = this.store.current;
    if (loading || nextPageId === null || query !== this.#query) return;
    this.store.dispatch({ type: "loading" });
    await this.#load(nextPageId, (page) => ({ type: "next-page", page }));
  }

  /** What comes too late, since something else is looked for by now, is left out. */
  async #load(pageId: string | null, taken: (page: ConversationPage, query: string) => ListAction): Promise<void> {
    const query = this.#query;
    let action: ListAction;
    try {
      action = taken(await this.#api.conversations(PAGE_SIZE, pageId, query), query);
    } catch (error) {
      action = { type: "failed", error: errorText(error) };
    }
    if (query === this.#query) this.store.dispatch(action);
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
