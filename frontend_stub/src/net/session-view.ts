/** What the parts of a session have in common: what is known of the conversation, and whom to tell more. */
import type { ConversationModel, ConversationStore, ModelAction } from "../state/model";

export class SessionView {
  readonly #store: ConversationStore;
  /** Once it is set, nothing more is told. */
  closed = false;

  constructor(store: ConversationStore) {
    this.#store = store;
  }

  get model(): Readonly<ConversationModel> {
    return this.#store.current;
  }

  dispatch(action: ModelAction): void {
    if (!this.closed) this.#store.dispatch(action);
  }

  notice(text: string): void {
    this.dispatch({ type: "notice", level: "error", text });
  }
}
