import { afterEach, describe, expect, it, vi } from "vitest";
import { Api } from "../src/net/api";
import { ApiError, createRequest, fetchFromServer } from "../src/net/http";
import { TokenKeeper } from "../src/net/token";

interface Call {
  readonly url: string;
  readonly init: RequestInit;
}

/** Answers in order with the given responses and notes what was asked. */
function fetcher(...answers: readonly (Response | Error)[]) {
  const calls: Call[] = [];
  const queue = [...answers];
  const fetch = (url: string, init?: RequestInit): Promise<Response> => {
    calls.push({ url, init: init ?? {} });
    const next = queue.shift() ?? new Error("no answer left");
    return next instanceof Error ? Promise.reject(next) : Promise.resolve(next);
  };
  return { calls, fetch };
}

const json = (status: number, body: unknown) => new Response(JSON.stringify(body), { status });

describe("requests", () => {
  it("carry the token, and none when there is none", async () => {
    const { calls, fetch } = fetcher(json(200, {}), json(200, {}));
    const keeper = new TokenKeeper();
    const request = createRequest(keeper, fetch);
    await request("GET", "/api/settings");
    keeper.accept("secret", { remember: false });
    await request("GET", "/api/settings");
    expect(calls.map((call) => new Headers(call.init.headers).get("x-session-api-key"))).toEqual([null, "secret"]);
  });

  it("name the answer that they have, and take it again while it holds, for the same token only", async () => {
    const tagged = (body: unknown, tag: string) => new Response(JSON.stringify(body), { headers: { etag: tag } });
    const unchanged = () => new Response(null, { status: 304 });
    const { calls, fetch } = fetcher(tagged([1], '"a"'), unchanged(), tagged([2], '"b"'), unchanged(), tagged([3], '"c"'));
    const request = createRequest(new TokenKeeper(), fetch);
    const seen = [];
    for (let n = 0; n < 4; n += 1) seen.push(await request("GET", "/api/conversations"));
    seen.push(await request("GET", "/api/conversations", undefined, "another"));
    expect(seen).toEqual([[1], [1], [2], [2], [3]]);
    expect(calls.map((call) => new Headers(call.init.headers).get("if-none-match"))).toEqual([null, '"a"', '"a"', '"b"', null]);
  });

  it("ask for the token on any 401", async () => {
    const keeper = new TokenKeeper();
    const request = createRequest(keeper, fetcher(json(401, { detail: "Unauthorized" })).fetch);
    await expect(request("GET", "/api/conversations")).rejects.toMatchObject({ status: 401 });
    expect(keeper.loginNeeded.getSnapshot()).toBe(true);
  });

  it("do not ask for it when a git provider refuses its own", async () => {
    const keeper = new TokenKeeper();
    const request = createRequest(keeper, fetcher(json(401, "Unable to access repo ann/boat")).fetch);
    await expect(request("POST", "/api/conversations", {})).rejects.toMatchObject({ message: "Unable to access repo ann/boat" });
    expect(keeper.loginNeeded.getSnapshot()).toBe(false);
  });

  it.each([
    [json(500, { error: "broken" }), "broken"],
    [json(404, { status: "error", message: "Conversation not found", msg_id: "CONVERSATION$NOT_FOUND" }), "Conversation not found"],
    [json(400, { detail: "Invalid limit" }), "Invalid limit"],
    [json(422, { detail: [{ loc: ["body", "title"], msg: "too long" }] }), "title: too long"],
    [json(403, "Unable to access"), "Unable to access"],
    [new Response("<html>Bad gateway</html>", { status: 502 }), "The server answered with error 502."],
    [new TypeError("fetch failed"), "The server cannot be reached. Is it running?"],
  ])("turn failure %# into a sentence", async (answer, sentence) => {
    const request = createRequest(new TokenKeeper(), fetcher(answer).fetch);
    await expect(request("GET", "/api/x")).rejects.toThrow(sentence);
  });
});

describe("the API", () => {
  const api = (...answers: readonly Response[]) => {
    const { calls, fetch } = fetcher(...answers);
    return { calls, api: new Api(createRequest(new TokenKeeper(), fetch)) };
  };

  it("takes 404 for settings as nothing stored", async () => {
    expect(await api(json(404, { error: "Settings not found" })).api.settings()).toBeNull();
  });

  it("takes null for a conversation as unknown", async () => {
    expect(await api(json(200, null)).api.conversation("c1")).toBeNull();
  });

  it("keeps stored settings on save, without what is not a setting, and sends no key unless it is new", async () => {
    const { calls, api: subject } = api(json(200, {}));
    const stored = {
      llm_model: "openai/gpt-5",
      llm_api_key_set: true,
      llm_api_key: null,
      llm_base_url: null,
      confirmation_mode: true,
      security_analyzer: null,
      max_iterations: null,
      max_budget_per_task: null,
      git_user_name: null,
      git_user_email: null,
      language: "en",
      provider_tokens_set: {},
    };
    await subject.saveSettings(stored, { llm_base_url: "http://127.0.0.1:1" });
    const sent = calls[0]?.init.body;
    expect(JSON.parse(typeof sent === "string" ? sent : "")).toEqual({
      llm_model: "openai/gpt-5",
      confirmation_mode: true,
      language: "en",
      llm_base_url: "http://127.0.0.1:1",
    });
  });

  it("reads what the server runs on, and does without it", async () => {
    const DRYDOCK = { version: "1", sandbox: { provider: "docker", reason: "x" }, model: "m", demo: true, auth_required: false, settings_stored: false, account: null, guest: false };
    expect(await api(json(200, { APP_MODE: "oss", DRYDOCK })).api.config()).toEqual({ APP_MODE: "oss", DRYDOCK });
    expect(await api(json(200, { APP_MODE: "oss" })).api.config()).toEqual({ APP_MODE: "oss" });
  });

  it("fails with an ApiError that callers can tell apart", async () => {
    await expect(api(json(500, {})).api.models()).rejects.toBeInstanceOf(ApiError);
  });
});

describe("the token", () => {
  it("is taken from the address, and out of it", () => {
    window.history.replaceState(null, "", "/conversations/c1?x=1#token=a%2Fb");
    const keeper = new TokenKeeper();
    keeper.takeFromAddress();
    expect(keeper.token).toBe("a/b");
    expect(window.location.href).toMatch(/\/conversations\/c1\?x=1$/);
  });

  it("is kept for the tab, or on the device when asked", () => {
    new TokenKeeper().accept("tab", { remember: false });
    expect(window.localStorage).toHaveLength(0);
    expect(new TokenKeeper().token).toBe("tab");
    new TokenKeeper().accept("device", { remember: true });
    expect(window.sessionStorage).toHaveLength(0);
    expect(new TokenKeeper().token).toBe("device");
  });

  it("is forgotten on signing out", () => {
    const keeper = new TokenKeeper();
    keeper.accept("x", { remember: true });
    keeper.forget();
    expect(new TokenKeeper().token).toBeNull();
    expect(keeper.loginNeeded.getSnapshot()).toBe(true);
  });
});

describe("failed bodies", () => {
  it("never show a page of markup", async () => {
    const request = createRequest(new TokenKeeper(), fetcher(new Response("<h1>no</h1>", { status: 500 })).fetch);
    await expect(request("GET", "/api/x")).rejects.not.toThrow(/h1/);
  });
});

describe("a connection that the browser breaks off", () => {
  const broken = () => new TypeError("Failed to fetch");
  const stubbed = (...answers: readonly (Response | Error)[]) => {
    const { calls, fetch } = fetcher(...answers);
    vi.stubGlobal("fetch", fetch);
    return calls;
  };
  afterEach(() => vi.unstubAllGlobals());

  it("is made once more for what only reads, or has a key of its own", async () => {
    const keyed = { method: "POST", headers: { "Idempotency-Key": "k" } };
    const calls = stubbed(broken(), json(200, { a: 1 }), broken(), broken(), broken(), json(201, {}));
    expect(await (await fetchFromServer("/api/x", { method: "GET" })).json()).toEqual({ a: 1 });
    await expect(fetchFromServer("/api/x", {})).rejects.toThrow("Failed to fetch");
    expect((await fetchFromServer("/api/x", keyed)).status).toBe(201);
    expect(calls).toHaveLength(6);
  });

  it("is not for what changes something, nor behind its time limit", async () => {
    const late = new Error("too late");
    const calls = stubbed(broken(), late);
    await expect(fetchFromServer("/api/x", { method: "POST" })).rejects.toThrow("Failed to fetch");
    await expect(fetchFromServer("/api/x", { method: "GET" })).rejects.toBe(late);
    expect(calls).toHaveLength(2);
  });
});
