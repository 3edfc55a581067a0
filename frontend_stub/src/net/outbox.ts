/**
 * Messages of the user on their way to the server.
 *
 * Each has a key, and counts as delivered when its echo arrives. One that was on its way when a connection broke is sent
 * again under its key, with which the server stores it once; what was stored is mostly echoed before that.
 */
import type { ConversationStore, PendingMessage } from "../state/model";
import { newKey } from "./keys";

/** Long enough for the echoes of what was received before the break. */
const SETTLE_MILLISECONDS = 1_500;

export class Outbox {
  readonly #store: ConversationStore;
  readonly #send: (message: PendingMessage) => void;
  readonly #flushSoon: () => void;
  /** Messages handed to the present connection. */
  readonly #thisConnection = new Set<string>();
  #timer: number | undefined;

  /** `flushSoon` is called when there may be something to send again: to `flush`, as soon as that may be. */
  constructor(store: ConversationStore, send: (message: PendingMessage) => void, flushSoon: () => void) {
    this.#store = store;
    this.#send = send;
    this.#flushSoon = flushSoon;
  }

  add(text: string): void {
    this.#append(text, "held");
  }

  addCreated(text: string): void {
    this.#append(text, "created");
  }

  /** Sends what is held. To be called only while the line is up and the agent can take a message. */
  flush(): void {
    for (const message of this.#store.current.pending) {
      if (message.state !== "held") continue;
      this.#thisConnection.add(message.key);
      this.#store.dispatch({ type: "pending-sent", key: message.key, after: this.#store.current.lastEventId });
      this.#send(message);
    }
  }

  onConnect(): void {
    window.clearTimeout(this.#timer);
    this.#thisConnection.clear();
    if (this.#store.current.pending.some((message) => message.state === "sent")) {
      this.#timer = window.setTimeout(this.#holdUnanswered, SETTLE_MILLISECONDS);
    }
  }

  close(): void {
    window.clearTimeout(this.#timer);
  }

  #append(text: string, state: PendingMessage["state"]): void {
    const after = state === "created" ? -1 : this.#store.current.lastEventId;
    this.#store.dispatch({ type: "pending-add", message: { key: newKey(), text, state, after } });
  }

  readonly #holdUnanswered = (): void => {
    for (const { key, state } of this.#store.current.pending) {
      if (state === "sent" && !this.#thisConnection.has(key)) this.#store.dispatch({ type: "pending-held", key });
    }
    this.#flushSoon();
  };
}
