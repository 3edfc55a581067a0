/**
 * Messages of the user on their way to the server, in their order.
 *
 * Each has a key, and counts as delivered when its echo arrives. One that was on its way when a connection broke is sent
 * again under its key, with which the server stores it once; what was stored is mostly echoed before that. What is not
 * delivered is kept over a reload. What the server refused because it can store nothing is sent again once it can.
 */
import type { SendAnswer } from "../protocol/client-actions";
import type { ConversationStore, PendingMessage } from "../state/model";
import { newKey } from "./keys";
import { readKept, writeKept } from "./kept-messages";

/** Long enough for the echoes of what was received before the break. */
const SETTLE_MILLISECONDS = 1_500;

export type Send = (message: PendingMessage, onAnswer: (answer: SendAnswer) => void) => void;

export class Outbox {
  readonly #store: ConversationStore;
  readonly #send: Send;
  readonly #flushSoon: () => void;
  /** Messages handed to the present connection. */
  readonly #thisConnection = new Set<string>();
  #timer: number | undefined;
  #kept: readonly PendingMessage[] = [];

  /** `flushSoon` is called when there may be something to send again: to `flush`, as soon as that may be. */
  constructor(store: ConversationStore, send: Send, flushSoon: () => void) {
    this.#store = store;
    this.#send = send;
    this.#flushSoon = flushSoon;
    for (const { key, text, refusal } of readKept(store.current.conversationId)) {
      const state = refusal === "" ? "held" : "refused";
      store.dispatch({ type: "pending-add", message: { key, text, state, refusal, after: -1 } });
    }
    this.#kept = store.current.pending;
  }

  /** Whether something waits to be sent. */
  get holds(): boolean {
    return this.#store.current.pending.some((message) => message.state === "held");
  }

  add(text: string): void {
    this.#append(text, "held");
  }

  addCreated(text: string): void {
    this.#append(text, "created");
  }

  /** Takes a message back that the server does not have; returns its text, or null when it may have it. */
  takeBack(key: string): string | null {
    const message = this.#store.current.pending.find((entry) => entry.key === key);
    if (message?.state !== "held" && message?.state !== "refused") return null;
    this.#store.dispatch({ type: "pending-remove", key });
    this.keep();
    return message.text;
  }

  /** Sends what is held. To be called only while the line is up and the agent can take a message. */
  flush(): void {
    if (this.#store.current.outage !== "") return;
    for (const message of this.#store.current.pending) {
      // Until it is known what became of this one, none may overtake it.
      if (message.state === "sent" && !this.#thisConnection.has(message.key)) break;
      if (message.state !== "held") continue;
      this.#thisConnection.add(message.key);
      this.#store.dispatch({ type: "pending-sent", key: message.key, after: this.#store.current.lastEventId });
      this.#send(message, (answer) => {
        this.#onAnswer(message.key, answer);
      });
    }
  }

  onConnect(): void {
    window.clearTimeout(this.#timer);
    this.#thisConnection.clear();
    if (this.#store.current.pending.some((message) => message.state === "sent")) {
      this.#timer = window.setTimeout(this.#holdUnanswered, SETTLE_MILLISECONDS);
    }
  }

  /** Keeps what is not delivered. To be called when echoes may have come. */
  keep(): void {
    const { conversationId, pending } = this.#store.current;
    if (pending === this.#kept) return;
    this.#kept = pending;
    const undelivered = pending.filter((message) => message.state !== "created");
    const kept = undelivered.map(({ key, text, state, refusal = "" }) => ({ key, text, refusal: state === "refused" ? refusal : "" }));
    writeKept(conversationId, kept);
  }

  close(): void {
    window.clearTimeout(this.#timer);
  }

  #append(text: string, state: PendingMessage["state"]): void {
    const after = state === "created" ? -1 : this.#store.current.lastEventId;
    this.#store.dispatch({ type: "pending-add", message: { key: newKey(), text, state, after } });
    this.keep();
  }

  #onAnswer(key: string, answer: SendAnswer): void {
    if ("refusal" in answer) {
      this.#store.dispatch({ type: answer.passes ? "pending-held" : "pending-refused", key, refusal: answer.refusal });
    }
    // What stands before the history that is loaded is not echoed again.
    else if (answer.id <= this.#store.current.lastEventId) this.#store.dispatch({ type: "pending-remove", key });
    this.keep();
  }

  readonly #holdUnanswered = (): void => {
    for (const { key, state } of this.#store.current.pending) {
      if (state === "sent" && !this.#thisConnection.has(key)) this.#store.dispatch({ type: "pending-held", key });
    }
    this.#flushSoon();
  };
}
