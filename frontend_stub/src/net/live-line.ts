/** Keeps the live line of one conversation up: opens it, mends it, and puts what comes over it into the store. */
import type { ClientAction, SendAnswer } from "../protocol/client-actions";
import { parseDelta, parseFrame, parseToolCall } from "../protocol/frames";
import type { Delta, Frame } from "../protocol/frames";
import type { SessionView } from "./session-view";
import type { Line, OpenLine } from "./socket";
import type { TokenKeeper } from "./token";

export interface LiveLineParts {
  readonly keeper: TokenKeeper;
  readonly openLine: OpenLine;
  readonly origin: string;
  /** Asks for the conversation's facts, by which it is decided whether to try again. */
  readonly refresh: () => Promise<void>;
  readonly onConnect: () => void;
  /** Told of each frame, after the store. */
  readonly onFrame: (frame: Frame) => void;
}

const RETRY_FIRST_MILLISECONDS = 1_000;
const RETRY_MAX_MILLISECONDS = 30_000;
const INVALID_KEY = "invalid_session_api_key";

export class LiveLine {
  readonly #view: SessionView;
  readonly #parts: LiveLineParts;
  #line: Line | null = null;
  #retry: number | undefined;
  #retryDelay = RETRY_FIRST_MILLISECONDS;

  constructor(view: SessionView, parts: LiveLineParts) {
    this.#view = view;
    this.#parts = parts;
  }

  get connected(): boolean {
    return this.#line?.connected === true;
  }

  /** Whether it is up, or being brought up. */
  get opened(): boolean {
    return this.#line !== null;
  }

  connect(): void {
    if (this.#view.closed || this.connected) return;
    window.clearTimeout(this.#retry);
    this.#view.dispatch({ type: "connection", connection: "connecting" });
    this.#line ??= this.#open();
    this.#line.connect();
  }

  /** Tries at once, and patiently from the beginning again. */
  connectNow(): void {
    this.#retryDelay = RETRY_FIRST_MILLISECONDS;
    this.connect();
  }

  disconnect(): void {
    this.close();
    this.#view.dispatch({ type: "connection", connection: "idle" });
  }

  hurry(): void {
    this.#line?.hurry();
  }

  send(action: ClientAction, onAnswer?: (answer: SendAnswer) => void): void {
    this.#line?.send(action, onAnswer);
  }

  close(): void {
    window.clearTimeout(this.#retry);
    this.#line?.close();
    this.#line = null;
  }

  #open(): Line {
    const { model } = this.#view;
    return this.#parts.openLine(
      {
        origin: this.#parts.origin,
        conversationId: model.conversationId,
        sessionApiKey: this.#parts.keeper.token ?? model.info?.session_api_key ?? null,
      },
      {
        latestEventId: () => this.#view.model.lastEventId,
        latestEventTimestamp: () => this.#view.model.lastEventTimestamp,
        onConnect: () => {
          this.#retryDelay = RETRY_FIRST_MILLISECONDS;
          this.#view.dispatch({ type: "connection", connection: "live" });
          this.#parts.onConnect();
          void this.#parts.refresh();
        },
        onDrop: () => {
          this.#view.dispatch({ type: "connection", connection: "reconnecting" });
        },
        onClosedByServer: () => {
          void this.#afterServerClosed();
        },
        onRefused: (message) => {
          void this.#afterRefusal(message);
        },
        onEvent: (payload) => {
          const frame = parseFrame(payload);
          if (frame === null) return;
          this.#view.dispatch({ type: "frame", frame, at: Date.now() });
          this.#parts.onFrame(frame);
        },
        onDelta: (payload) => {
          this.#takeDelta(parseDelta(payload));
        },
        onToolCall: (payload) => {
          this.#takeDelta(parseToolCall(payload));
        },
        onResync: () => {
          this.#view.notice("The server has another history of this conversation than this page. Reload the page to see it.");
        },
      },
    );
  }

  #takeDelta(delta: Delta | null): void {
    if (delta !== null) this.#view.dispatch({ type: "delta", delta });
  }

  /** The server ended the line: the conversation was stopped, or will be served again in a moment. */
  async #afterServerClosed(): Promise<void> {
    this.#view.dispatch({ type: "connection", connection: "reconnecting" });
    await this.#parts.refresh();
    if (this.#view.closed) return;
    const { info, infoState } = this.#view.model;
    if (infoState === "missing" || info?.status === "STOPPED" || info?.status === "ARCHIVED") this.disconnect();
    else this.#retryLater();
  }

  async #afterRefusal(message: string): Promise<void> {
    if (message === INVALID_KEY) {
      this.disconnect();
      this.#parts.keeper.refuse();
      return;
    }
    this.#view.dispatch({ type: "connection", connection: "refused", refusal: message });
    await this.#parts.refresh();
    if (this.#view.closed || this.#view.model.infoState === "missing") return;
    // While the sandbox starts, a server may refuse the line; that is no news for the user.
    if (this.#view.model.info?.status !== "STARTING") {
      this.#view.notice(`The server refused the live connection: ${message}. Trying again by itself.`);
    }
    this.#retryLater();
  }

  #retryLater(): void {
    window.clearTimeout(this.#retry);
    this.#retry = window.setTimeout(() => {
      this.connect();
    }, this.#retryDelay);
    this.#retryDelay = Math.min(this.#retryDelay * 2, RETRY_MAX_MILLISECONDS);
  }
}
