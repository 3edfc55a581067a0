import { describe, expect, it } from "vitest";
import { lastingApproval, messageAction, stateAction } from "../src/protocol/client-actions";
import { frameId, parseDelta, parseFrame } from "../src/protocol/frames";
import { errorCode, explain, explainReason, progressLabel } from "../src/protocol/status";
import { action, state } from "./builders";

describe("recognising frames", () => {
  it("takes the four shapes of the protocol", () => {
    expect(parseFrame(action(1, "run", { command: "ls" }))?.kind).toBe("event");
    expect(parseFrame(state(null, "stopped"))?.kind).toBe("state");
    expect(parseFrame({ status_update: true, type: "error", id: "STATUS$ERROR", message: "x" })).toEqual({
      kind: "status",
      level: "error",
      id: "STATUS$ERROR",
      message: "x",
      title: null,
    });
    expect(parseFrame({ error: true, message: "no" })).toEqual({ kind: "error", message: "no" });
  });

  it.each([null, 7, "text", [], {}, { action: "run" }, { id: "1", action: "run" }, { id: 1.5, action: "run" }, { id: 1 }, state(1, "dreaming")])(
    "ignores %j",
    (payload) => {
      expect(parseFrame(payload)).toBeNull();
    },
  );

  it("survives missing and wrongly typed fields", () => {
    const parsed = parseFrame({ id: 3, action: "run", args: "ls", source: 5, message: null, cause: "2" });
    expect(parsed).toEqual({
      kind: "event",
      event: { id: 3, timestamp: "", source: "agent", message: "", action: "run", args: {} },
    });
    expect(frameId(parsed)).toBe(3);
  });

  it("takes the deltas it knows and ignores others", () => {
    expect(parseDelta({ kind: "output", cause: 3, text: "x" })).toEqual({ kind: "output", cause: 3, text: "x" });
    expect(parseDelta({ kind: "discard", response_id: "r" })).toEqual({ kind: "discard", response_id: "r" });
    expect(parseDelta({ kind: "output", text: "x" })).toBeNull();
    expect(parseDelta({ kind: "music" })).toBeNull();
  });
});

describe("what the page sends", () => {
  it("is exactly what the protocol lists", () => {
    expect(messageAction("hi", new Date("2025-11-15T09:43:21.123Z"))).toEqual({
      action: "message",
      args: { content: "hi", image_urls: [], file_urls: [], timestamp: "2025-11-15T09:43:21.123Z" },
    });
    expect(stateAction("user_confirmed")).toEqual({ action: "change_agent_state", args: { agent_state: "user_confirmed" } });
    expect(lastingApproval().args).toEqual({ agent_state: "user_confirmed", remember: true });
  });
});

describe("explanations", () => {
  it("say what to do about a known error", () => {
    expect(explain("STATUS$ERROR_LLM_AUTHENTICATION")?.link).toBe("settings");
    expect(explainReason("RuntimeError: Agent reached maximum iteration. Current iteration: 3, max iteration: 3").title).toMatch(/limit of steps/);
    expect(explainReason("ValueError: odd").details).toBe("odd");
    expect(explainReason("STATUS$ERROR_LLM_AUTHENTICATION", "bad key").details).toBe("bad key");
    expect(explainReason("SandboxError: no engine")).toMatchObject({ title: "The sandbox could not be started", details: "no engine" });
  });

  it("name the server's page about an error, where there is one", () => {
    expect(errorCode("STATUS$ERROR_DISK_LIMIT")).toBe("STATUS$ERROR_DISK_LIMIT");
    expect(errorCode("LLMContextWindowError: too long")).toBe("LLMContextWindowError");
    expect(errorCode("RuntimeError: Agent reached maximum iteration. Current iteration: 3")).toBe("MaxIterationsReached");
    expect(errorCode("EngineUnavailableError: gone")).toBe("engine_unavailable");
    expect(errorCode("STATUS$ERROR")).toBe("");
    expect(errorCode("ValueError: odd")).toBe("");
  });

  it("put an unknown runtime status in plain words", () => {
    expect(progressLabel("STATUS$WARMING_UP")).toBe("Warming up");
    expect(progressLabel("STATUS$STARTING_RUNTIME")).toBe("Starting the sandbox");
  });
});
