/**
 * One open conversation: loads its history, goes live, and does what the user asks for.
 *
 * Everything it learns goes to the store as actions.
 */
import { keyed, lastingApproval, messageAction, stateAction } from "../protocol/client-actions";
import type { ClientAction, RequestedState } from "../protocol/client-actions";
import type { Frame } from "../protocol/frames";
import { isWaiting } from "../protocol/status";
import type { ConversationStore } from "../state/model";
import { acceptsMessage, needsStart, phaseOf } from "../state/phase";
import type { Api } from "./api";
import { HistoryLoader } from "./history";
import { errorText, passes } from "./http";
import { InfoWatch } from "./info-watch";
import { LiveLine } from "./live-line";
import { Outbox } from "./outbox";
import type { Send } from "./outbox";
import { SessionView } from "./session-view";
import type { OpenLine } from "./socket";
import type { TokenKeeper } from "./token";

const START_AGAIN_MILLISECONDS = 3_000;

export interface SessionParts {
  readonly api: Api;
  readonly keeper: TokenKeeper;
  readonly store: ConversationStore;
  readonly openLine: OpenLine;
  readonly origin: string;
  /** Told whenever the conversation's title or status may have changed. */
  readonly onInfo?: () => void;
}

export class ConversationSession {
  readonly #id: string;
  readonly #parts: SessionParts;
  readonly #view: SessionView;
  readonly #outbox: Outbox;
  readonly #history: HistoryLoader;
  readonly #info: InfoWatch;
  readonly #line: LiveLine;
  /** A message waits, and it is not known yet whether the conversation sleeps. */
  #startWanted: boolean;
  #startAgain: number | undefined;

  constructor(id: string, parts: SessionParts) {
    this.#id = id;
    this.#parts = parts;
    const { api, keeper, openLine, origin, store } = parts;
    const view = (this.#view = new SessionView(store));
    this.#history = new HistoryLoader(id, api, (action) => {
      view.dispatch(action);
    });
    this.#info = new InfoWatch(api, view, () => parts.onInfo?.(), this.#afterPoll);
    const refresh = () => this.#info.refresh();
    this.#line = new LiveLine(view, { keeper, openLine, origin, refresh, onConnect: this.#onConnect, onFrame: this.#onFrame });
    const send: Send = (message, onAnswer) => {
      this.#line.send(keyed(messageAction(message.text), message.key), onAnswer);
    };
    this.#outbox = new Outbox(store, send, this.#flushOutbox);
    this.#startWanted = this.#outbox.holds;
  }

  /** Shows what there is, then goes live unless the conversation sleeps. */
  async open(): Promise<void> {
    await Promise.all([this.#info.refresh(), this.#history.loadNewest()]);
    if (this.#view.closed) return;
    this.#outbox.keep();
    if (this.#isServed) this.#line.connect();
    this.#startIfWanted();
    this.#info.schedule();
  }

  /** The network is back: no waiting for the next attempt. */
  hurry(): void {
    this.#line.hurry();
    const { connection, infoState } = this.#view.model;
    if (connection === "refused" || infoState === "failed") this.retryNow();
  }

  close(): void {
    this.#view.closed = true;
    window.clearTimeout(this.#startAgain);
    this.#info.close();
    this.#outbox.close();
    this.#line.close();
  }

  /** Shows the message at once and hands it over as soon as the agent can take it. */
  send(text: string): void {
    this.#outbox.add(text);
    const phase = phaseOf(this.#view.model);
    if (needsStart(phase)) void this.start();
    else if (phase === "opening") this.#startWanted = true;
    else this.#flushOutbox();
  }

  /** Takes back a message that the server does not have; returns its text, or null when it may have it by now. */
  takeBack(key: string): string | null {
    return this.#outbox.takeBack(key);
  }

  /** Notes the message a conversation was created with, so that it is seen before the server echoes it. */
  showCreated(text: string): void {
    this.#outbox.addCreated(text);
  }

  request(state: RequestedState): void {
    if (needsStart(phaseOf(this.#view.model)) && state === "running") {
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
      this.#view.notice(`The conversation could not be taken back. ${errorText(error)}`);
      return;
    }
    if (this.#view.closed) return;
    await this.#info.refresh();
    this.#line.connect();
  }

  /** Makes a conversation that begins like this one; returns its id, or null when that failed. */
  async fork(eventId: number): Promise<string | null> {
    try {
      return await this.#parts.api.fork(this.#id, eventId);
    } catch (error) {
      this.#view.notice(`The other conversation could not be made. ${errorText(error)}`);
      return null;
    }
  }

  /** Starts a sleeping conversation and goes live; where what is in the way may pass, it is tried again. */
  async start(): Promise<void> {
    window.clearTimeout(this.#startAgain);
    this.#view.dispatch({ type: "starting", starting: true, at: Date.now() });
    try {
      await this.#parts.api.startConversation(this.#id);
    } catch (error) {
      const text = `The conversation could not be started. ${errorText(error)}`;
      const again = passes(error) && !this.#view.closed;
      const obstacle = again ? `${text} It is tried again by itself.` : "";
      this.#view.dispatch({ type: "starting", starting: false, at: Date.now(), obstacle });
      if (again) this.#startAgain = window.setTimeout(() => void this.start(), START_AGAIN_MILLISECONDS);
      else this.#view.notice(text);
      return;
    }
    if (this.#view.closed) return;
    this.#info.expectStart();
    await this.#info.refresh();
    this.#line.connect();
    this.#info.schedule();
  }

  /** Ends the sandbox and keeps the history. */
  async sleep(): Promise<void> {
    try {
      await this.#parts.api.stopConversation(this.#id);
    } catch (error) {
      this.#view.notice(`The conversation could not be stopped. ${errorText(error)}`);
      return;
    }
    this.#line.disconnect();
    await this.#info.refresh();
    this.#info.schedule();
  }

  /** Tries a refused or failed connection again now. */
  retryNow(): void {
    if (this.#view.model.infoState === "failed") void this.open();
    else this.#line.connectNow();
  }

  async loadOlder(): Promise<void> {
    await this.#history.loadOlder();
    this.#outbox.keep();
  }

  /** Shows a title before the server has announced it. */
  showTitle(title: string): void {
    const { info } = this.#view.model;
    if (info === null) return;
    this.#view.dispatch({ type: "info", info: { ...info, title } });
    this.#parts.store.flush();
  }

  dismiss(key: string): void {
    this.#view.dispatch({ type: "notice-dismiss", key });
  }

  get #isServed(): boolean {
    const status = this.#view.model.info?.status;
    return status === "STARTING" || status === "RUNNING";
  }

  #sendNow(action: ClientAction): void {
    if (this.#line.connected) this.#line.send(action);
    else this.#view.notice("There is no connection to the server just now. Try again when it is back.");
  }

  #startIfWanted(): void {
    const phase = phaseOf(this.#view.model);
    if (!this.#startWanted || phase === "opening") return;
    this.#startWanted = false;
    if (needsStart(phase) && this.#outbox.holds) void this.start();
  }

  readonly #afterPoll = (): void => {
    // Started elsewhere, or the page was opened while the server was away: go live.
    if (!this.#line.opened && this.#isServed) this.#line.connect();
    this.#startIfWanted();
    this.#flushOutbox();
  };

  readonly #onConnect = (): void => {
    this.#outbox.onConnect();
    this.#flushOutbox();
  };

  readonly #onFrame = (frame: Frame): void => {
    this.#outbox.keep();
    if (frame.kind === "state" || (frame.kind === "status" && (frame.level === "info" || isWaiting(frame.id)))) this.#flushOutbox();
    if (frame.kind === "status" && frame.title !== null) this.#parts.onInfo?.();
  };

  readonly #flushOutbox = (): void => {
    if (this.#line.connected && acceptsMessage(phaseOf(this.#view.model))) this.#outbox.flush();
  };
}
