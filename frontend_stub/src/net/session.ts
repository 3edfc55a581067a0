/**
 * One open conversation: loads its history, keeps its line up, sends what the user says.
 *
 * Everything it learns goes to the store as actions; it keeps only what concerns connecting.
 */
import { lastingApproval, messageAction, stateAction } from "../protocol/client-actions";
import type { ClientAction, RequestedState } from "../protocol/client-actions";
import { parseDelta, parseFrame, parseToolCall } from "../protocol/frames";
import type { ConversationModel, ConversationStore, ModelAction } from "../state/model";
import { acceptsMessage, needsStart, phaseOf } from "../state/phase";
import type { Api } from "./api";
import { HistoryLoader } from "./history";
import { ApiError, errorText } from "./http";
import { Outbox } from "./outbox";
import type { Line, OpenLine } from "./socket";
import type { TokenKeeper } from "./token";

export interface SessionParts {
  readonly api: Api;
  readonly keeper: TokenKeeper;
  readonly store: ConversationStore;
  readonly openLine: OpenLine;
  readonly origin: string;
  /** Told whenever the conversation's title or status may have changed. */
  readonly onInfo?: () => void;
}

const POLL_STARTING_MILLISECONDS = 1_000;
const POLL_STARTING_LATER_MILLISECONDS = 3_000;
const POLL_MILLISECONDS = 30_000;
const FAST_POLLS = 10;
const RETRY_FIRST_MILLISECONDS = 1_000;
const RETRY_MAX_MILLISECONDS = 30_000;
const INVALID_KEY = "invalid_session_api_key";

export class ConversationSession {
  readonly #id: string;
  readonly #parts: SessionParts;
  readonly #outbox: Outbox;
  readonly #history: HistoryLoader;
  #line: Line | null = null;
  #poll: number | undefined;
  #retry: number | undefined;
  #retryDelay = RETRY_FIRST_MILLISECONDS;
  #startingPolls = 0;
  #closed = false;

  constructor(id: string, parts: SessionParts) {
    this.#id = id;
    this.#parts = parts;
    this.#history = new HistoryLoader(id, parts.api, (action) => {
      this.#dispatch(action);
    });
    this.#outbox = new Outbox(id, parts.api, parts.store, (text) => {
      this.#line?.send(messageAction(text));
    });
  }

  /** Shows what there is, then goes live unless the conversation sleeps. */
  async open(): Promise<void> {
    await Promise.all([this.#refreshInfo(), this.#history.loadNewest()]);
    if (this.#closed) return;
    const status = this.#model.info?.status;
    if (status === "STARTING" || status === "RUNNING") this.#connect();
    this.#schedulePoll();
  }

  /** The network is back: no waiting for the next attempt. */
  hurry(): void {
    this.#line?.hurry();
    if (this.#model.connection === "refused" || this.#model.infoState === "failed") this.retryNow();
  }

  close(): void {
    this.#closed = true;
    window.clearTimeout(this.#poll);
    window.clearTimeout(this.#retry);
    this.#outbox.close();
    this.#line?.close();
    this.#line = null;
  }

  /** Shows the message at once and hands it over as soon as the agent can take it. */
  send(text: string): void {
    this.#outbox.add(text);
    if (needsStart(phaseOf(this.#model))) void this.start();
    else this.#flushOutbox();
  }

  /** Notes the message a conversation was created with, so that it is seen before the server echoes it. */
  showCreated(text: string): void {
    this.#outbox.addCreated(text);
  }

  request(state: RequestedState): void {
    if (needsStart(phaseOf(this.#model)) && state === "running") {
      void this.start();
      return;
    }
    this.#sendNow(stateAction(state));
  }

  /** Approves what waits, and everything that comes later in this conversation. */
  approveForGood(): void {
    this.#sendNow(lastingApproval());
  }

  /** Refuses what waits and says why: a message is a refusal, which the agent then reads. */
  rejectSaying(reason: string): void {
    this.#sendNow(messageAction(reason));
  }

  /** Goes on behind this event of the history; where the conversation sleeps it wakes up. */
  async goBack(eventId: number | null): Promise<void> {
    try {
      await this.#parts.api.rewind(this.#id, eventId);
    } catch (error) {
      this.#notice(`The conversation could not be taken back. ${errorText(error)}`);
      return;
    }
    if (this.#closed) return;
    await this.#refreshInfo();
    this.#connect();
  }

  /** Makes a conversation that begins like this one; returns its id, or null when that failed. */
  async fork(eventId: number): Promise<string | null> {
    try {
      return await this.#parts.api.fork(this.#id, eventId);
    } catch (error) {
      this.#notice(`The other conversation could not be made. ${errorText(error)}`);
      return null;
    }
  }

  #sendNow(action: ClientAction): void {
    if (this.#line?.connected === true) this.#line.send(action);
    else this.#notice("There is no connection to the server just now. Try again when it is back.");
  }

  /** Starts a sleeping conversation and goes live. */
  async start(): Promise<void> {
    this.#dispatch({ type: "starting", starting: true, at: Date.now() });
    try {
      await this.#parts.api.startConversation(this.#id);
    } catch (error) {
      this.#dispatch({ type: "starting", starting: false, at: Date.now() });
      this.#notice(`The conversation could not be started. ${errorText(error)}`);
      return;
    }
    if (this.#closed) return;
    this.#startingPolls = 0;
    await this.#refreshInfo();
    this.#connect();
    this.#schedulePoll();
  }

  /** Ends the sandbox and keeps the history. */
  async sleep(): Promise<void> {
    try {
      await this.#parts.api.stopConversation(this.#id);
    } catch (error) {
      this.#notice(`The conversation could not be stopped. ${errorText(error)}`);
      return;
    }
    this.#disconnect();
    await this.#refreshInfo();
    this.#schedulePoll();
  }

  /** Tries a refused or failed connection again now. */
  retryNow(): void {
    window.clearTimeout(this.#retry);
    this.#retryDelay = RETRY_FIRST_MILLISECONDS;
    if (this.#model.infoState === "failed") void this.open();
    else this.#connect();
  }

  async loadOlder(): Promise<void> {
    await this.#history.loadOlder();
  }

  /** Shows a title before the server has announced it. */
  showTitle(title: string): void {
    const { info } = this.#model;
    if (info === null) return;
    this.#dispatch({ type: "info", info: { ...info, title } });
    this.#parts.store.flush();
  }

  dismiss(key: string): void {
    this.#dispatch({ type: "notice-dismiss", key });
  }

  get #model(): Readonly<ConversationModel> {
    return this.#parts.store.current;
  }

  #dispatch(action: ModelAction): void {
    if (!this.#closed) this.#parts.store.dispatch(action);
  }

  #notice(text: string): void {
    this.#dispatch({ type: "notice", level: "error", text });
  }

  async #refreshInfo(): Promise<void> {
    try {
      const info = await this.#parts.api.conversation(this.#id);
      if (info === null) this.#dispatch({ type: "info-state", state: "missing" });
      else this.#dispatch({ type: "info", info });
      this.#parts.onInfo?.();
    } catch (error) {
      if (error instanceof ApiError && error.status === 401) return;
      this.#dispatch({ type: "info-state", state: "failed" });
    }
  }

  #schedulePoll(): void {
    window.clearTimeout(this.#poll);
    if (this.#closed || this.#model.infoState === "missing") return;
    let delay = POLL_MILLISECONDS;
    if (this.#model.infoState === "failed") delay = POLL_STARTING_LATER_MILLISECONDS;
    if (this.#model.info?.status === "STARTING") {
      this.#startingPolls += 1;
      delay = this.#startingPolls <= FAST_POLLS ? POLL_STARTING_MILLISECONDS : POLL_STARTING_LATER_MILLISECONDS;
    }
    this.#poll = window.setTimeout(() => {
      void this.#pollOnce();
    }, delay);
  }

  async #pollOnce(): Promise<void> {
    await this.#refreshInfo();
    if (this.#closed) return;
    const status = this.#model.info?.status;
    // Started elsewhere, or the page was opened while the server was away: go live.
    if (this.#line === null && (status === "STARTING" || status === "RUNNING")) this.#connect();
    this.#flushOutbox();
    this.#schedulePoll();
  }

  #connect(): void {
    if (this.#closed || this.#line?.connected === true) return;
    window.clearTimeout(this.#retry);
    this.#dispatch({ type: "connection", connection: "connecting" });
    this.#line ??= this.#openLine();
    this.#line.connect();
  }

  #disconnect(): void {
    window.clearTimeout(this.#retry);
    this.#line?.close();
    this.#line = null;
    this.#dispatch({ type: "connection", connection: "idle" });
  }

  #openLine(): Line {
    return this.#parts.openLine(
      {
        origin: this.#parts.origin,
        conversationId: this.#id,
        sessionApiKey: this.#parts.keeper.token ?? this.#model.info?.session_api_key ?? null,
      },
      {
        latestEventId: () => this.#model.lastEventId,
        onConnect: () => {
          this.#retryDelay = RETRY_FIRST_MILLISECONDS;
          this.#dispatch({ type: "connection", connection: "live" });
          this.#outbox.onConnect();
          this.#flushOutbox();
          void this.#refreshInfo();
        },
        onDrop: () => {
          this.#dispatch({ type: "connection", connection: "reconnecting" });
        },
        onClosedByServer: () => {
          void this.#afterServerClosed();
        },
        onRefused: (message) => {
          void this.#afterRefusal(message);
        },
        onEvent: (payload) => {
          this.#take(payload);
        },
        onDelta: (payload) => {
          const delta = parseDelta(payload);
          if (delta !== null) this.#dispatch({ type: "delta", delta });
        },
        onToolCall: (payload) => {
          const delta = parseToolCall(payload);
          if (delta !== null) this.#dispatch({ type: "delta", delta });
        },
        onResync: () => {
          this.#notice("The server has another history of this conversation than this page. Reload the page to see it.");
        },
      },
    );
  }

  #take(payload: unknown): void {
    const frame = parseFrame(payload);
    if (frame === null) return;
    this.#dispatch({ type: "frame", frame, at: Date.now() });
    if (frame.kind === "state") this.#flushOutbox();
    if (frame.kind === "status" && frame.title !== null) this.#parts.onInfo?.();
  }

  /** The server ended the line: the conversation was stopped, or will be served again in a moment. */
  async #afterServerClosed(): Promise<void> {
    this.#dispatch({ type: "connection", connection: "reconnecting" });
    await this.#refreshInfo();
    if (this.#closed) return;
    const { info, infoState } = this.#model;
    if (infoState === "missing" || info?.status === "STOPPED" || info?.status === "ARCHIVED") this.#disconnect();
    else this.#retryLater();
  }

  async #afterRefusal(message: string): Promise<void> {
    if (message === INVALID_KEY) {
      this.#disconnect();
      this.#parts.keeper.refuse();
      return;
    }
    this.#dispatch({ type: "connection", connection: "refused", refusal: message });
    await this.#refreshInfo();
    if (this.#closed || this.#model.infoState === "missing") return;
    // While the sandbox starts, a server may refuse the line; that is no news for the user.
    if (this.#model.info?.status !== "STARTING") {
      this.#notice(`The server refused the live connection: ${message}. Trying again by itself.`);
    }
    this.#retryLater();
  }

  #retryLater(): void {
    window.clearTimeout(this.#retry);
    this.#retry = window.setTimeout(() => {
      this.#connect();
    }, this.#retryDelay);
    this.#retryDelay = Math.min(this.#retryDelay * 2, RETRY_MAX_MILLISECONDS);
  }

  #flushOutbox(): void {
    if (this.#line?.connected === true && acceptsMessage(phaseOf(this.#model))) this.#outbox.flush();
  }
}
