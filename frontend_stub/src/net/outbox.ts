/**
 * Messages of the user on their way to the server.
 *
 * The protocol has no acknowledgement, so a message counts as delivered when its echo arrives. After a broken
 * connection the log is asked whether a message made it; only one that is not there is sent again.
 */
import { frameId, parseFrame } from "../protocol/frames";
import { isAction } from "../protocol/events";
import { stringField } from "../protocol/fields";
import type { ConversationStore, PendingMessage } from "../state/model";
import { acceptsMessage, phaseOf } from "../state/phase";
import type { Api } from "./api";

/** Long enough for a message that was received just before the break to be stored. */
const SETTLE_MILLISECONDS = 1_500;
const VERIFY_PAGE = 100;

export class Outbox {
  readonly #conversationId: string;
  readonly #api: Api;
  readonly #store: ConversationStore;
  readonly #send: (text: string) => void;
  /** Messages handed to the present connection; others in flight must be verified. */
  readonly #thisConnection = new Set<string>();
  #count = 0;
  #timer: number | undefined;
  #connections = 0;

  constructor(conversationId: string, api: Api, store: ConversationStore, send: (text: string) => void) {
    this.#conversationId = conversationId;
    this.#api = api;
    this.#store = store;
    this.#send = send;
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
      this.#send(message.text);
    }
  }

  onConnect(): void {
    this.#connections += 1;
    this.#thisConnection.clear();
    if (this.#connections > 1) this.#verifyLater();
  }

  close(): void {
    window.clearTimeout(this.#timer);
  }

  #append(text: string, state: PendingMessage["state"]): void {
    this.#count += 1;
    const after = state === "created" ? -1 : this.#store.current.lastEventId;
    this.#store.dispatch({ type: "pending-add", message: { key: `p${this.#count}`, text, state, after } });
  }

  #verifyLater(): void {
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => {
      void this.#verify();
    }, SETTLE_MILLISECONDS);
  }

  /** Finds out which messages of an earlier connection are in the log; the others are sent once more. */
  async #verify(): Promise<void> {
    const doubtful = this.#store.current.pending.filter(
      (entry) => entry.state !== "held" && !this.#thisConnection.has(entry.key),
    );
    if (doubtful.length === 0) return;
    if (!acceptsMessage(phaseOf(this.#store.current))) {
      this.#verifyLater();
      return;
    }
    const connection = this.#connections;
    let stored: Map<string, number>;
    try {
      stored = await this.#storedMessages(Math.min(...doubtful.map((entry) => entry.after)) + 1);
    } catch {
      this.#verifyLater();
      return;
    }
    if (connection !== this.#connections) return;
    for (const message of doubtful) this.#settle(message, stored);
    if (this.#store.current.connection === "live") this.flush();
  }

  #settle(message: PendingMessage, stored: Map<string, number>): void {
    const text = message.text.trim();
    const copies = stored.get(text) ?? 0;
    if (copies > 0) {
      stored.set(text, copies - 1);
      this.#store.dispatch({ type: "pending-drop", key: message.key });
    } else {
      this.#store.dispatch({ type: "pending-held", key: message.key });
    }
  }

  /** Texts of the user's messages in the log from `startId` on, with how often each occurs. */
  async #storedMessages(startId: number): Promise<Map<string, number>> {
    const found = new Map<string, number>();
    let next = startId;
    for (;;) {
      const page = await this.#api.events(this.#conversationId, { startId: next, limit: VERIFY_PAGE });
      const frames = page.events.map(parseFrame);
      for (const frame of frames) {
        if (frame?.kind !== "event" || !isAction(frame.event)) continue;
        if (frame.event.source !== "user" || frame.event.action !== "message") continue;
        const text = stringField(frame.event.args, "content").trim();
        found.set(text, (found.get(text) ?? 0) + 1);
      }
      const last = Math.max(...frames.map((frame) => frameId(frame)));
      if (!page.has_more || last < next) return found;
      next = last + 1;
    }
  }
}
