/** The live line of one conversation over Socket.IO. */
import { io } from "socket.io-client";
import type { Socket } from "socket.io-client";
import { BASE_PATH } from "./base-path";
import { parseAnswer } from "../protocol/client-actions";
import type { ClientAction, SendAnswer } from "../protocol/client-actions";

export interface LineEvents {
  /** The newest event id the page has: asked for before every connection, so that a replay starts after it. */
  readonly latestEventId: () => number;
  /** When that event was, as the server wrote it: a log that has lost its end has another one there. */
  readonly latestEventTimestamp: () => string;
  readonly onConnect: () => void;
  /** The connection broke and is being mended without our doing. */
  readonly onDrop: () => void;
  /** The server ended the connection on purpose; nothing happens until `connect` is called again. */
  readonly onClosedByServer: () => void;
  /** The server refused us; nothing happens until `connect` is called again. */
  readonly onRefused: (message: string) => void;
  readonly onEvent: (payload: unknown) => void;
  readonly onDelta: (payload: unknown) => void;
  readonly onToolCall: (payload: unknown) => void;
  /** The server's log does not go on where the page's ends. */
  readonly onResync: (payload: unknown) => void;
}

export interface Line {
  readonly connected: boolean;
  readonly connect: () => void;
  /** Ends the wait for the next attempt, when there is reason to believe that it will succeed. */
  readonly hurry: () => void;
  /** `onAnswer` is told what the server says of it, where it says anything. */
  readonly send: (action: ClientAction, onAnswer?: (answer: SendAnswer) => void) => void;
  readonly close: () => void;
}

export interface LineOptions {
  readonly origin: string;
  readonly conversationId: string;
  readonly sessionApiKey: string | null;
}

export type OpenLine = (options: LineOptions, events: LineEvents) => Line;

const RECONNECT_FIRST_MILLISECONDS = 400;
const RECONNECT_MAX_MILLISECONDS = 2_500;
const CONNECT_TIMEOUT_MILLISECONDS = 10_000;

export const openLine: OpenLine = (options, events) => {
  const query = () => ({
    latest_event_id: String(events.latestEventId()),
    latest_event_timestamp: events.latestEventTimestamp(),
    conversation_id: options.conversationId,
    providers_set: "",
    session_api_key: options.sessionApiKey ?? "null",
  });
  const socket: Socket = io(options.origin, {
    path: `${BASE_PATH}/socket.io/`,
    transports: ["websocket"],
    // Each conversation has its own connection, since the query belongs to the handshake.
    forceNew: true,
    autoConnect: false,
    reconnectionDelay: RECONNECT_FIRST_MILLISECONDS,
    reconnectionDelayMax: RECONNECT_MAX_MILLISECONDS,
    timeout: CONNECT_TIMEOUT_MILLISECONDS,
    query: query(),
  });
  const refreshQuery = () => {
    socket.io.opts.query = query();
  };
  socket.io.on("reconnect_attempt", refreshQuery);
  socket.on("connect", events.onConnect);
  socket.on("disconnect", (reason) => {
    if (reason === "io server disconnect") events.onClosedByServer();
    else if (reason !== "io client disconnect") events.onDrop();
  });
  socket.on("connect_error", (error) => {
    // An active socket goes on trying by itself; an inactive one was refused by the server's own word.
    if (socket.active) events.onDrop();
    else events.onRefused(error.message);
  });
  socket.on("oh_event", events.onEvent);
  socket.on("oh_delta", events.onDelta);
  socket.on("oh_tool_call", events.onToolCall);
  socket.on("oh_resync", events.onResync);
  return {
    get connected() {
      return socket.connected;
    },
    connect: () => {
      refreshQuery();
      socket.connect();
    },
    hurry: () => {
      if (socket.connected || !socket.active) return;
      socket.disconnect();
      refreshQuery();
      socket.connect();
    },
    send: (action, onAnswer) => {
      if (onAnswer === undefined) {
        socket.emit("oh_user_action", action);
        return;
      }
      socket.emit("oh_user_action", action, (payload: unknown) => {
        const answer = parseAnswer(payload);
        if (answer !== null) onAnswer(answer);
      });
    },
    close: () => {
      socket.io.off("reconnect_attempt", refreshQuery);
      socket.off();
      socket.disconnect();
    },
  };
};
