import { describe, expect, it } from "vitest";
import { agentMessage, action, dispatch, frame, liveModel, observation, ran, receive, run, state, userMessage } from "./builders";
import { awaitedActions } from "../src/state/timeline";

const shape = (model: ReturnType<typeof liveModel>) =>
  model.timeline.items.map((item) => [item.key, item.kind, item.observation?.id ?? null]);

describe("the timeline", () => {
  it("joins a command with its answer by cause", () => {
    const model = liveModel(run(1, "ls"), run(2, "pwd"), ran(3, 2, "/workspace"), ran(4, 1, "a"));
    expect(shape(model)).toEqual([
      ["e1", "command", 4],
      ["e2", "command", 3],
    ]);
  });

  it("replaces the changed item and leaves the others untouched", () => {
    const model = liveModel(run(1, "ls"), run(2, "pwd"));
    const [first, second] = model.timeline.items;
    receive(model, ran(3, 2, "/workspace"));
    expect(model.timeline.items[0]).toBe(first);
    expect(model.timeline.items[1]).not.toBe(second);
  });

  it("never draws an event twice, however often and in whatever way it comes", () => {
    const model = liveModel(userMessage(0, "hi"), run(1, "ls"), ran(2, 1, "a"));
    const before = shape(model);
    receive(model, run(1, "ls"), ran(2, 1, "a"), userMessage(0, "hi"));
    dispatch(model, { type: "history", events: [frame(userMessage(0, "hi")), frame(run(1, "ls"))], hasMore: false });
    expect(shape(model)).toEqual(before);
    expect(model.lastEventId).toBe(2);
  });

  it("hides what is no news: recalls, state requests, receipts for thoughts, hidden commands", () => {
    const model = liveModel(
      action(0, "recall", { query: "x" }, { source: "user" }),
      action(1, "change_agent_state", { agent_state: "running" }),
      action(2, "think", { thought: "hm" }),
      observation(3, "think", "Your thought has been logged.", {}, { cause: 2 }),
      run(4, "secret", { hidden: true }),
      observation(5, "run", "x", { hidden: true }, { cause: 4 }),
    );
    expect(shape(model)).toEqual([["e2", "think", 3]]);
  });

  it("shows workspace facts, whose request is hidden, as a line of their own", () => {
    const model = liveModel(
      action(0, "recall", {}, { source: "user" }),
      observation(1, "recall", "Added workspace context", { working_dir: "/workspace" }, { cause: 0 }),
    );
    expect(shape(model)).toEqual([["e0", "recall", 1]]);
  });

  it("shows an unknown type as a generic card", () => {
    const model = liveModel(action(0, "dance", { style: "hornpipe" }), observation(1, "tide", "high"));
    expect(shape(model)).toEqual([
      ["e0", "generic", null],
      ["e1", "generic", 1],
    ]);
  });

  it("shows an error that answers a command inside that command's card", () => {
    const model = liveModel(run(1, "ls"), observation(2, "error", "no", { error_id: "" }, { cause: 1 }));
    expect(shape(model)).toEqual([["e1", "command", 2]]);
  });

  it("shows an approved action once, with the thought of the question", () => {
    const model = liveModel(
      state(0, "awaiting_user_confirmation"),
      run(1, "rm x", { confirmation_state: "awaiting_confirmation", thought: "clean up" }),
    );
    expect(model.timeline.awaiting).toEqual([1]);
    receive(model, run(2, "rm x", { confirmation_state: "confirmed" }), state(3, "user_confirmed"), ran(4, 2, ""));
    expect(shape(model)).toEqual([["e1", "command", 4]]);
    expect(model.timeline.items[0]?.action?.args.thought).toBe("clean up");
    expect(model.timeline.awaiting).toEqual([]);
  });

  it("marks what a rewind undoes, and what another one brings back, also when history is put in front", () => {
    const undone = (model: ReturnType<typeof liveModel>) => model.timeline.items.filter((item) => item.undone).map((item) => item.key);
    const back = (id: number, to: number | null) => action(id, "rewind", { to, note: "" }, { source: "user" });
    const model = liveModel(run(2, "ls"), ran(3, 2, "a"), run(4, "pwd"), back(5, 3), run(6, "cd"), back(7, 2), run(8, "id"));
    expect(undone(model)).toEqual(["e4", "e5", "e6"]);
    receive(model, back(9, 6));
    expect(undone(model)).toEqual(["e4", "e7", "e8"]);
    receive(model, back(10, null));
    dispatch(model, { type: "history", events: [frame(userMessage(1, "hi"))], hasMore: false });
    expect(undone(model)).toEqual(["e1", "e2", "e4", "e5", "e6", "e7", "e8", "e9"]);
    expect(model.timeline.undone).toBe(8);
  });

  it("shows each action of a batch once when the batch was decided on", () => {
    const asked = { confirmation_state: "awaiting_confirmation" };
    const call = (id: string) => ({ tool_call_metadata: { tool_call_id: id } });
    const model = liveModel(run(1, "rm x", asked, call("a")), run(2, "rm y", asked, call("b")));
    expect(awaitedActions(model.timeline).map((action) => action.args.command)).toEqual(["rm x", "rm y"]);
    const no = { confirmation_state: "rejected" };
    receive(model, run(3, "rm x", no, call("a")), run(4, "rm y", no, call("b")), ran(5, 3, ""), ran(6, 4, ""));
    expect(shape(model)).toEqual([
      ["e1", "command", 5],
      ["e2", "command", 6],
    ]);
    expect(model.timeline.items.map((item) => item.action?.id)).toEqual([3, 4]);
    expect(awaitedActions(model.timeline)).toEqual([]);
  });

  it("asks nothing any more of what the conversation was taken back from", () => {
    const model = liveModel(run(1, "rm x", { confirmation_state: "awaiting_confirmation" }), action(2, "rewind", { to: 0 }));
    expect(awaitedActions(model.timeline)).toEqual([]);
    expect(shape(model)[1]).toEqual(["e2", "rewind", null]);
  });

  it("pairs an answer with an action that is loaded later", () => {
    const model = liveModel(ran(5, 4, "late"), agentMessage(6, "done"));
    expect(shape(model)[0]).toEqual(["e4", "command", 5]);
    dispatch(model, { type: "history", events: [frame(run(4, "ls")), frame(userMessage(3, "go"))], hasMore: true });
    expect(shape(model)).toEqual([
      ["e3", "user", null],
      ["e4", "command", 5],
      ["e6", "agent", null],
    ]);
    expect(model.prepends).toBe(1);
    expect(model.older).toBe("more");
  });

  it("takes ten thousand events in well under a second", () => {
    const model = liveModel();
    const payloads = Array.from({ length: 5_000 }, (_, index) => [run(2 * index, "ls"), ran(2 * index + 1, 2 * index, "x")]).flat();
    const frames = payloads.map(frame);
    const start = process.cpuUsage(); // processor time: the machine may have other work
    for (const entry of frames) dispatch(model, { type: "frame", frame: entry, at: 0 });
    const { user, system } = process.cpuUsage(start);
    expect((user + system) / 1000).toBeLessThan(500);
    expect(model.timeline.items).toHaveLength(5_000);
  });
});
