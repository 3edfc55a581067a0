import { describe, expect, it } from "vitest";
import { LIVE_OUTPUT_LIMIT } from "../src/state/streams";
import { parseToolCall } from "../src/protocol/frames";
import type { Delta } from "../src/protocol/frames";
import type { ConversationModel } from "../src/state/model";
import { agentMessage, dispatch, liveModel, ran, receive, run, state } from "./builders";

const say = (id: string, text: string): Delta => ({ kind: "message", response_id: id, text });
const deltas = (model: ConversationModel, ...all: readonly Delta[]) => {
  dispatch(model, ...all.map((delta) => ({ type: "delta", delta }) as const));
};
const texts = (model: ConversationModel) => model.streams.responses.map((entry) => entry.text);
const answered = (id: string) => ({ tool_call_metadata: { model_response: { id } } });

describe("the time that a client has for a call", () => {
  const at = "2026-05-04T12:30:15Z";

  it("is known until the call is answered, or over in another way", () => {
    const model = liveModel();
    const calls = [4, 5].map((id) => parseToolCall({ call_id: id, name: "ask_db", arguments: {}, deadline: at, is_over: false }));
    deltas(model, ...calls.filter((call) => call !== null));
    expect([...model.streams.deadlines]).toEqual([[4, at], [5, at]]);
    receive(model, ran(6, 4, "done"));
    const over = parseToolCall({ call_id: 5, name: "ask_db", is_over: true });
    deltas(model, ...(over === null ? [] : [over]));
    expect(model.streams.deadlines.size).toBe(0);
    expect(parseToolCall({ name: "ask_db" })).toBeNull();
  });
});

describe("streamed text", () => {
  it("grows until the final event takes its place", () => {
    const model = liveModel(state(0, "running"));
    deltas(model, say("r1", "Hel"), say("r1", "lo"));
    expect(texts(model)).toEqual(["Hello"]);
    receive(model, agentMessage(1, "Hello", answered("r1")));
    expect(texts(model)).toEqual([]);
  });

  it("is dropped by the final event even when that does not tell its response", () => {
    const model = liveModel();
    deltas(model, say("r1", "Hello"));
    receive(model, agentMessage(1, "Hello"));
    expect(texts(model)).toEqual([]);
  });

  it("ignores a late delta of a response that is final", () => {
    const model = liveModel();
    deltas(model, say("r1", "Hel"));
    receive(model, agentMessage(1, "Hello", answered("r1")));
    deltas(model, say("r1", "lo"));
    expect(texts(model)).toEqual([]);
  });

  it("keeps the next response when a second tool call of the last one arrives", () => {
    const model = liveModel();
    deltas(model, say("r1", "both"));
    receive(model, run(1, "a", {}, answered("r1")));
    deltas(model, say("r2", "next"));
    receive(model, run(2, "b", {}, answered("r1")));
    expect(texts(model)).toEqual(["next"]);
  });

  it("is discarded when the request is made again", () => {
    const model = liveModel();
    deltas(model, say("r1", "half"), { kind: "reasoning", response_id: "r1", text: "hm" }, { kind: "discard", response_id: "r1" }, say("r2", "whole"));
    expect(texts(model)).toEqual(["whole"]);
  });

  it("does not outlive a stop or a broken connection", () => {
    const stopped = liveModel(state(0, "running"));
    deltas(stopped, say("r1", "half"));
    receive(stopped, state(1, "stopped"));
    expect(texts(stopped)).toEqual([]);

    const broken = liveModel(state(0, "running"));
    deltas(broken, say("r1", "half"));
    dispatch(broken, { type: "connection", connection: "reconnecting" });
    expect(texts(broken)).toEqual([]);
  });
});

describe("live output", () => {
  const print = (cause: number, text: string): Delta => ({ kind: "output", cause, text });

  it("belongs to its command, even when it comes first, and ends with the answer", () => {
    const model = liveModel();
    deltas(model, print(1, "a\n"));
    receive(model, run(1, "ls"));
    deltas(model, print(1, "b\n"));
    expect(model.streams.output.get(1)).toBe("a\nb\n");
    receive(model, ran(2, 1, "a\nb\n"));
    expect(model.streams.output.has(1)).toBe(false);
  });

  it("is bounded, keeping the end", () => {
    const model = liveModel(run(1, "yes"));
    for (let index = 0; index < 40; index += 1) deltas(model, print(1, "y".repeat(10_000)));
    deltas(model, print(1, "end"));
    const text = model.streams.output.get(1) ?? "";
    expect(text.length).toBeLessThanOrEqual(2 * LIVE_OUTPUT_LIMIT + 3);
    expect(text.endsWith("end")).toBe(true);
  });
});
