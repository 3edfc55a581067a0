import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/net/api";
import { ConversationSession } from "../src/net/session";
import { openLine } from "../src/net/socket";
import { TokenKeeper } from "../src/net/token";
import { reduce } from "../src/state/conversation";
import { createModel } from "../src/state/model";
import { phaseOf } from "../src/state/phase";
import { ModelStore } from "../src/state/store";
import { agentMessage, run, userMessage } from "./builders";
import { FakeServer } from "./fake-server";

const WAIT = { timeout: 10_000, interval: 20 };

let server: FakeServer;
let keeper: TokenKeeper;
let session: ConversationSession;
let store: ModelStore<ReturnType<typeof createModel>, Parameters<typeof reduce>[1]>;

const ids = () => store.current.timeline.items.map((item) => item.key);
const until = (condition: () => boolean) => vi.waitFor(() => { expect(condition()).toBe(true); }, WAIT);
const live = () => until(() => store.current.connection === "live");

function createSession(): ConversationSession {
  store = new ModelStore(createModel("c1"), reduce);
  return new ConversationSession("c1", { api: new Api(server.request), keeper, store, openLine, origin: server.origin });
}

beforeEach(async () => {
  server = new FakeServer();
  await server.listen();
  keeper = new TokenKeeper();
  session = createSession();
});

afterEach(async () => {
  session.close();
  await server.kill();
});

describe("an open conversation", () => {
  it("loads the newest history and asks the line only for what follows", async () => {
    for (let id = 0; id < 250; id += 1) server.log.push(agentMessage(id, `m${id}`));
    await session.open();
    await live();
    expect(server.handshakes.map((entry) => entry.latestEventId)).toEqual([249]);
    expect(ids()).toHaveLength(100);
    await session.loadOlder();
    await session.loadOlder();
    expect(ids()).toEqual(Array.from({ length: 250 }, (_, id) => `e${id}`));
    expect(store.current.older).toBe("none");
  });

  it("sends the query of the protocol", async () => {
    await session.open();
    await live();
    expect(server.handshakes[0]?.query).toMatchObject({
      conversation_id: "c1",
      latest_event_id: "-1",
      providers_set: "",
      session_api_key: "null",
    });
  });

  it("goes on after a killed server without a gap and without a double", async () => {
    server.log.push(userMessage(0, "go"), run(1, "ls"));
    await session.open();
    await live();
    server.append(agentMessage(2, "seen live"));
    await until(() => ids().length === 3);
    await server.kill();
    await until(() => store.current.connection === "reconnecting");
    server.log.push(agentMessage(3, "written meanwhile"));
    await server.listen();
    await live();
    await until(() => ids().length === 4);
    expect(server.handshakes.at(-1)?.latestEventId).toBe(2);
    expect(ids()).toEqual(["e0", "e1", "e2", "e3"]);
  }, 20_000);

  it("sends a message again only when the log does not have it", async () => {
    server.ready();
    await session.open();
    await live();
    await until(() => phaseOf(store.current) === "ready");
    server.deaf = true;
    session.send("lost");
    await until(() => server.received.length === 1);
    await server.kill();
    server.deaf = false;
    await server.listen();
    await until(() => server.received.length === 2);
    await until(() => store.current.pending.length === 0);
    expect(server.log.filter((event) => event.message === "lost")).toHaveLength(1);
    const keys = server.received.map((action) => (action as { readonly idempotency_key?: string }).idempotency_key);
    expect(keys[0]).toMatch(/^[0-9a-f]{32}$/);
    expect(keys[1]).toBe(keys[0]);
  }, 20_000);

  it("knows the echo of a message by its key, whatever the server made of its text", async () => {
    server.ready();
    await session.open();
    await live();
    await until(() => phaseOf(store.current) === "ready");
    server.deaf = true;
    session.send("the password is hunter2");
    await until(() => server.received.length === 1);
    const key = store.current.pending[0]?.key ?? "";
    server.append({ ...userMessage(1, "the password is hunter2"), idempotency_key: "another page's" });
    await until(() => ids().length === 1);
    expect(store.current.pending).toHaveLength(1);
    server.append({ ...userMessage(2, "the password is <secret_hidden>"), idempotency_key: key });
    await until(() => store.current.pending.length === 0);
  });

  it("does not send again what was stored just before the break", async () => {
    server.ready();
    await session.open();
    await live();
    await until(() => phaseOf(store.current) === "ready");
    server.deaf = true;
    session.send("stored");
    await until(() => server.received.length === 1);
    await server.kill();
    server.log.push(userMessage(1, "stored"));
    await server.listen();
    await live();
    await until(() => store.current.pending.length === 0);
    expect(server.received).toHaveLength(1);
    expect(ids()).toEqual(["e1"]);
  }, 20_000);

  it("sends what was written meanwhile after what was on its way when the line broke", async () => {
    server.ready();
    await session.open();
    await live();
    await until(() => phaseOf(store.current) === "ready");
    server.deaf = true;
    session.send("one");
    await until(() => server.received.length === 1);
    await server.kill();
    await until(() => store.current.connection === "reconnecting");
    session.send("two");
    expect(store.current.pending.map((entry) => entry.state)).toEqual(["sent", "held"]);
    server.deaf = false;
    await server.listen();
    await until(() => store.current.pending.length === 0);
    expect(server.log.filter((event) => event.action === "message").map((event) => event.message)).toEqual(["one", "two"]);
  });

  it("takes back what waits, which is then not sent, and not what is on its way", async () => {
    await session.open();
    await live();
    session.send("first");
    session.send("second");
    const keys = store.current.pending.map((entry) => entry.key);
    expect(session.takeBack(keys[0] ?? "")).toBe("first");
    server.ready();
    await until(() => store.current.pending.length === 0);
    expect(session.takeBack(keys[1] ?? "")).toBeNull();
    expect(server.log.filter((event) => event.action === "message").map((event) => event.message)).toEqual(["second"]);
  });

  it("sends after a reload what was not sent before, under the same key, and nothing that was stored", async () => {
    await session.open();
    await live();
    session.send("stored");
    session.send("waits");
    const [stored, waits] = store.current.pending.map((entry) => entry.key);
    session.close();
    server.log.push({ ...userMessage(server.log.length, "stored"), idempotency_key: stored });
    server.ready();
    session = createSession();
    expect(store.current.pending.map((entry) => entry.text)).toEqual(["stored", "waits"]);
    await session.open();
    await until(() => store.current.pending.length === 0);
    expect(server.received).toMatchObject([{ args: { content: "waits" }, idempotency_key: waits }]);
    session.close();
    session = createSession();
    expect(store.current.pending).toEqual([]);
  });

  it("wakes after a reload for what was not sent before", async () => {
    await session.open();
    session.send("wake up");
    session.close();
    server.status = "STOPPED";
    session = createSession();
    await session.open();
    await live();
    expect(server.requests).toContain("POST /api/conversations/c1/start");
  });

  it("keeps a message that the server refuses, with the reason, and does not send it again", async () => {
    server.ready();
    await session.open();
    await live();
    server.answer = { success: false, error: "too long" };
    session.send("a word");
    await until(() => store.current.pending[0]?.state === "refused");
    session.close();
    session = createSession();
    await session.open();
    await live();
    expect(store.current.pending).toMatchObject([{ text: "a word", state: "refused", refusal: "too long" }]);
    expect(server.received).toHaveLength(1);
    expect(session.takeBack(store.current.pending[0]?.key ?? "")).toBe("a word");
  });

  it("sends a message again that was refused while the server could store nothing, once it can", async () => {
    server.ready();
    await session.open();
    await live();
    server.answer = { success: false, error: "The disk is full", code: "disk_full" };
    session.send("a word");
    await until(() => store.current.pending[0]?.refusal === "The disk is full");
    for (const frame of [
      { error: true, message: "The disk is full" },
      { status_update: true, type: "error", id: "STATUS$ERROR", message: "The disk is full" },
      { status_update: true, type: "error", id: "STATUS$ERROR_STORAGE", message: "Nothing can be stored" },
    ]) {
      server.emit(frame);
    }
    await until(() => store.current.outage === "Nothing can be stored");
    expect(store.current.notices).toEqual([]);
    expect(store.current.pending).toMatchObject([{ text: "a word", state: "held" }]);
    expect(server.received).toHaveLength(1);
    server.answer = null;
    server.emit({ status_update: true, type: "info", id: "STATUS$READY", message: "It stores again" });
    await until(() => server.received.length === 2);
    expect(store.current.outage).toBe("");
    const keys = server.received.map((action) => (action as { readonly idempotency_key: string }).idempotency_key);
    expect(new Set(keys).size).toBe(1);
  });

  it("counts a message as delivered that the server says is in its log already", async () => {
    for (let id = 0; id < 5; id += 1) server.log.push(agentMessage(id, `m${id}`));
    server.ready();
    await session.open();
    await live();
    server.answer = { success: true, id: 2 };
    session.send("long since stored");
    await until(() => server.received.length === 1 && store.current.pending.length === 0);
  });

  it.each(["not JSON", "{}", "[1, null, {}]", '[{"key": "k", "text": 7}]', '[{"key": "a b", "text": "x"}]'])(
    "forgets what an older page left that makes no sense: %s",
    (text) => {
      window.sessionStorage.setItem("drydock.pending.c1", text);
      session = createSession();
      expect(store.current.pending).toEqual([]);
    },
  );

  it("holds a message while the agent starts and sends it when the agent is ready", async () => {
    await session.open();
    await live();
    session.send("early");
    expect(store.current.pending.map((entry) => entry.state)).toEqual(["held"]);
    expect(server.received).toEqual([]);
    server.ready();
    await until(() => store.current.pending.length === 0);
    expect(server.received).toHaveLength(1);
  });

  it("shows a sleeping conversation without waking it, and wakes it on sending", async () => {
    server.status = "STOPPED";
    server.log.push(userMessage(0, "old"));
    await session.open();
    expect(phaseOf(store.current)).toBe("asleep");
    expect(ids()).toEqual(["e0"]);
    expect(server.handshakes).toEqual([]);

    session.send("wake up");
    await live();
    expect(server.requests).toContain("POST /api/conversations/c1/start");
    server.ready();
    await until(() => ids().length === 2);
    expect(store.current.pending).toEqual([]);
  });

  it("says why a start does not come about, and makes it by itself as soon as it can", async () => {
    server.status = "STOPPED";
    server.shortage = "The server has no memory.";
    await session.open();
    session.send("wake up");
    await until(() => store.current.obstacle.includes("The server has no memory. It is tried again by itself."));
    expect([phaseOf(store.current), store.current.notices]).toEqual(["asleep", []]);
    server.shortage = "";
    await live();
    server.ready();
    await until(() => ids().length === 1);
    expect([store.current.obstacle, store.current.pending]).toEqual(["", []]);
  });

  it("falls asleep when the server ends the line because the conversation was stopped", async () => {
    server.ready();
    await session.open();
    await live();
    server.status = "STOPPED";
    server.hangUp();
    await until(() => phaseOf(store.current) === "asleep");
  });

  it("comes back by itself when the server ends the line but serves on", async () => {
    server.ready();
    await session.open();
    await live();
    server.hangUp();
    await until(() => server.handshakes.length === 2);
    await live();
  });

  it("asks for the token when the server refuses the key", async () => {
    server.refusal = "invalid_session_api_key";
    await session.open();
    await until(() => keeper.loginNeeded.getSnapshot());
  });

  it("sends the token it has as the session's key", async () => {
    keeper.accept("secret", { remember: false });
    await session.open();
    await live();
    expect(server.handshakes[0]?.query.session_api_key).toBe("secret");
  });

  it("tries again after another refusal, and says so", async () => {
    server.refusal = "Failed to join conversation";
    await session.open();
    await until(() => store.current.connection === "refused" && store.current.notices.length > 0);
    expect(store.current.notices[0]?.text).toContain("Failed to join conversation");
    server.refusal = null;
    await live();
  });

  it("takes streamed text from its own event", async () => {
    server.ready();
    await session.open();
    await live();
    server.emit({ kind: "message", response_id: "r1", text: "Hel" }, "oh_delta");
    server.emit({ kind: "message", response_id: "r1", text: "lo" }, "oh_delta");
    await until(() => store.current.streams.responses[0]?.text === "Hello");
  });

  it("says when the server's history is another one than its own", async () => {
    server.ready();
    await session.open();
    await live();
    server.emit({ reason: "unknown_position", latest_event_id: 7, start_id: 0, end_id: 3 }, "oh_resync");
    await until(() => store.current.notices.some((notice) => notice.text.includes("Reload the page")));
  });
});
