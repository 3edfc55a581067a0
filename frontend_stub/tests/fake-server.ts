/** A small server that keeps a log and plays the protocol: real Socket.IO, REST by direct call. */
import { createServer } from "node:http";
import type { Server as HttpServer } from "node:http";
import type { AddressInfo } from "node:net";
import { Server } from "socket.io";
import { ApiError } from "../src/net/http";
import type { Request } from "../src/net/http";
import { info, state, userMessage } from "./builders";

interface Handshake {
  readonly latestEventId: number;
  readonly query: Readonly<Record<string, unknown>>;
}

export class FakeServer {
  readonly log: Record<string, unknown>[] = [];
  readonly handshakes: Handshake[] = [];
  readonly received: unknown[] = [];
  readonly requests: string[] = [];
  status: "STARTING" | "RUNNING" | "STOPPED" = "RUNNING";
  /** Set to lose what clients send, as a server does that dies before it stores. */
  deaf = false;
  refusal: string | null = null;
  /** Why nothing can be started. */
  shortage = "";
  /** Set to have messages answered with it, and not stored. */
  answer: unknown = null;
  #io: Server | null = null;
  #http: HttpServer | null = null;
  #port = 0;

  get origin(): string {
    return `http://127.0.0.1:${this.#port}`;
  }

  async listen(): Promise<void> {
    this.#http = createServer();
    this.#io = new Server(this.#http, { transports: ["websocket"] });
    this.#io.use((_socket, next) => {
      next(this.refusal === null ? undefined : new Error(this.refusal));
    });
    this.#io.on("connection", (socket) => {
      const latestEventId = Number(socket.handshake.query.latest_event_id);
      this.handshakes.push({ latestEventId, query: socket.handshake.query });
      let last: Record<string, unknown> | null = null;
      for (const event of this.log) {
        if (event.observation === "agent_state_changed") last = event;
        else if (Number(event.id) > latestEventId) socket.emit("oh_event", event);
      }
      if (last !== null) socket.emit("oh_event", last);
      socket.on("oh_user_action", (action: { readonly action: string; readonly args: Record<string, unknown> }, answer?: (reply: unknown) => void) => {
        this.received.push(action);
        if (this.answer !== null) {
          answer?.(this.answer);
          return;
        }
        if (!this.deaf && action.action === "message") this.append(userMessage(this.log.length, String(action.args.content)));
      });
    });
    await new Promise<void>((resolve) => {
      this.#http?.listen(this.#port, "127.0.0.1", resolve);
    });
    this.#port = (this.#http.address() as AddressInfo).port;
  }

  /** Ends at once, as a killed process does; the log stays. */
  async kill(): Promise<void> {
    this.#io?.disconnectSockets(true);
    await this.#io?.close();
  }

  append(event: Record<string, unknown>): void {
    this.log.push(event);
    this.#io?.emit("oh_event", event);
  }

  emit(payload: unknown, name = "oh_event"): void {
    this.#io?.emit(name, payload);
  }

  ready(): void {
    this.append(state(this.log.length, "awaiting_user_input"));
  }

  /** Ends every connection on purpose, as when a conversation is stopped. */
  hangUp(): void {
    this.#io?.sockets.disconnectSockets(false);
  }

  readonly request: Request = (method, path) => {
    this.requests.push(`${method} ${path}`);
    if (path.includes("/events")) return Promise.resolve(this.#events(new URLSearchParams(path.split("?")[1])));
    if (path.endsWith("/start") && this.shortage !== "") return Promise.reject(new ApiError(503, this.shortage));
    if (path.endsWith("/start")) {
      this.status = "RUNNING";
      this.append(state(this.log.length, "loading"));
      return Promise.resolve({ status: "ok" });
    }
    if (path.endsWith("/conversations/c1")) return Promise.resolve(info({ status: this.status }));
    return Promise.reject(new ApiError(404, "no such route"));
  };

  #events(query: URLSearchParams) {
    const limit = Number(query.get("limit") ?? 20);
    const start = Number(query.get("start_id") ?? 0);
    const end = Number(query.get("end_id") ?? Number.MAX_SAFE_INTEGER);
    const range = this.log.filter((event) => Number(event.id) >= start && Number(event.id) <= end);
    const ordered = query.get("reverse") === "true" ? range.reverse() : range;
    return { events: ordered.slice(0, limit), has_more: ordered.length > limit };
  }
}
