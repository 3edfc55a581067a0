import { describe, expect, it } from "vitest";
import { createModel } from "../src/state/model";
import { acceptsMessage, phaseOf } from "../src/state/phase";
import { AT, agentMessage, dispatch, frame, info, liveModel, receive, run, state, userMessage } from "./builders";

const usage = (tokens: number) => ({ accumulated_cost: 0.5, accumulated_token_usage: { prompt_tokens: tokens } });
const status = (id: string, message = "", type = "info") => ({ status_update: true, type, id, message });

describe("agent state", () => {
  it("follows the newest state and ignores an older one that is told again", () => {
    const model = liveModel(state(3, "running"), agentMessage(4, "x"), state(5, "finished"));
    receive(model, state(3, "running"));
    expect(phaseOf(model)).toBe("finished");
  });

  it("takes a state without an id, as a server sends it when it closes a session", () => {
    const model = liveModel(state(3, "running"), state(null, "stopped"));
    expect(phaseOf(model)).toBe("stopped");
  });

  it("keeps the time since which a state holds when the state is repeated", () => {
    const model = liveModel(state(3, "running"));
    const since = model.agentStateSince;
    expect(since).toBe(Date.parse("2026-01-01T00:00:00Z"));
    receive(model, state(3, "running"), state(null, "running"));
    expect(model.agentStateSince).toBe(since);
  });

  it("leaves one line in the history for an error state, and none for its repetition", () => {
    const model = liveModel(state(3, "error", "STATUS$ERROR_MEMORY"));
    receive(model, state(3, "error", "STATUS$ERROR_MEMORY"), state(null, "error", "STATUS$ERROR_MEMORY"));
    expect(model.timeline.items.map((item) => item.observation?.content)).toEqual(["STATUS$ERROR_MEMORY"]);
    expect(phaseOf(model)).toBe("error");
  });

  it("tells an error once when both a status frame and a state report it", () => {
    const id = "STATUS$ERROR_LLM_AUTHENTICATION";
    const first = liveModel(status(id, "401", "error"), state(3, "error", id));
    const second = liveModel(state(3, "error", id), status(id, "401", "error"));
    expect(first.notices).toEqual([]);
    expect(second.notices).toEqual([]);
  });

  it("keeps the words of the status in the line that the error state leaves", () => {
    const id = "STATUS$ERROR_LLM_AUTHENTICATION";
    const model = liveModel(state(2, "running"), status(id, "The provider answered 401", "error"), state(3, "error", id));
    expect(model.timeline.items.at(-1)?.observation?.extras.detail).toBe("The provider answered 401");
  });

  it("takes the words that the log keeps, as after a reload", () => {
    const stored = { ...state(3, "error", "STATUS$ERROR"), extras: { agent_state: "error", reason: "STATUS$ERROR", detail: "In full." } };
    expect(liveModel(stored).timeline.items[0]?.observation?.extras.detail).toBe("In full.");
  });

  it("tells a limit once, though status and state use other words", () => {
    const model = liveModel(
      state(2, "running"),
      status("STATUS$ERROR", "Agent reached maximum iteration. Send a message to let the agent go on.", "error"),
      state(3, "error", "RuntimeError: Agent reached maximum iteration."),
    );
    expect(model.notices).toEqual([]);
    expect(model.timeline.items.at(-1)?.observation?.extras.detail).toContain("Send a message");
  });

  it("does not take an older refusal for the words of an error", () => {
    const id = "STATUS$ERROR_LLM_AUTHENTICATION";
    const model = liveModel(status("STATUS$ERROR", "too large", "error"), state(2, "running"), state(3, "error", id));
    expect(model.notices.map((notice) => notice.text)).toEqual(["too large"]);
    expect(model.timeline.items.at(-1)?.observation?.extras.detail).toBe("");
  });

  it("keeps one line of a failed start that is told before and after the first message", () => {
    const text = "SandboxError: No Docker engine answers";
    const model = liveModel(state(null, "error", text), userMessage(1, "hello"), state(null, "error", text));
    expect(model.timeline.items.map((item) => item.kind)).toEqual(["user", "error"]);
  });

  it("shows a refusal once, whether as an error or as a status", () => {
    const refusal = { error: true, message: "The message is too large" };
    const model = liveModel(refusal, status("STATUS$ERROR", "The message is too large", "error"));
    expect(model.notices).toHaveLength(1);
  });

  it.each([
    ["before", 0],
    ["after", 1],
  ])("tells a session that could not be started once, with the frames %s the state", (_, first) => {
    const text = "No Docker engine answers";
    const frames = [{ error: true, message: `Failed to create agent session: ${text}` }, status("STATUS$ERROR", text, "error")];
    const told = state(null, "error", `SandboxError: ${text}`);
    const model = liveModel(...(first === 0 ? [...frames, told] : [told, ...frames]));
    expect(model.notices).toEqual([]);
    expect(model.timeline.items).toHaveLength(1);
  });

  it("tells a failed start once, though it is told in three ways", () => {
    const text = "The sandbox did not start: no space left";
    const model = liveModel(
      state(0, "loading"),
      status("STATUS$ERROR", text),
      status("STATUS$ERROR", text, "error"),
      state(3, "error", `SandboxError: ${text}`),
    );
    expect(model.notices).toEqual([]);
    expect(model.progress).toEqual([]);
    expect(model.timeline.items).toHaveLength(1);
  });

  it("is asleep when the server says STOPPED and no line is up, whatever the old state was", () => {
    const model = createModel("c1");
    dispatch(model, { type: "info", info: info({ status: "STOPPED" }) });
    dispatch(model, { type: "history", events: [frame(state(9, "running"))], hasMore: false });
    expect(phaseOf(model)).toBe("asleep");
    expect(acceptsMessage(phaseOf(model))).toBe(true);
  });

  it("may not be sent to while it starts or asks for approval", () => {
    expect(acceptsMessage(phaseOf(liveModel(state(1, "loading"))))).toBe(false);
    expect(acceptsMessage(phaseOf(liveModel(state(1, "awaiting_user_confirmation"))))).toBe(false);
    expect(acceptsMessage(phaseOf(liveModel(state(1, "running"))))).toBe(true);
  });
});

describe("starting", () => {
  it("shows each step of the start once and forgets them when the agent is there", () => {
    const model = liveModel(
      state(0, "loading"),
      status("STATUS$STARTING_RUNTIME"),
      status("STATUS$STARTING_RUNTIME"),
      status("STATUS$STARTING_RUNTIME", "Creating the container"),
    );
    expect(model.progress.map((step) => step.label)).toEqual(["Starting the sandbox", "Creating the container"]);
    receive(model, state(1, "running"));
    expect(model.progress).toEqual([]);
  });

  it("says in whose place it waits, takes messages meanwhile, and forgets it when its turn has come", () => {
    const model = liveModel(state(0, "loading"), status("STATUS$WAITING_FOR_TURN", "Third in line: 2 agents are at work."));
    expect([phaseOf(model), model.waiting]).toEqual(["waiting", "Third in line: 2 agents are at work."]);
    expect(acceptsMessage(phaseOf(model))).toBe(true);
    receive(model, status("AGENT_ERROR$TOO_MANY_CONVERSATIONS", "Second in line: 1 of your conversations is at work.", "error"));
    expect(model.waiting).toBe("Second in line: 1 of your conversations is at work.");
    expect(model.notices).toEqual([]);
    receive(model, status("STATUS$STARTING_RUNTIME"));
    expect(phaseOf(model)).toBe("starting");
    receive(model, state(1, "running"), status("STATUS$WAITING_FOR_TURN", "First in line."));
    expect(phaseOf(model)).toBe("waiting");
    receive(model, state(2, "paused"));
    expect(phaseOf(model)).toBe("paused");
  });

  it("says in few words what is held back", () => {
    const model = liveModel(state(0, "loading"), status("STATUS$HELD_BACK", "A long story of crashes."));
    expect([phaseOf(model), model.waiting]).toEqual(["waiting", "Held back"]);
  });

  it("goes back to an earlier step when the engine is away and the start begins anew", () => {
    const starting = status("STATUS$STARTING_RUNTIME", "Starting the sandbox");
    const model = liveModel(state(0, "loading"), starting, status("STATUS$STARTING_RUNTIME", "Waiting for the engine."), starting);
    expect(model.progress.map((step) => step.label)).toEqual(["Starting the sandbox"]);
    receive(model, status("STATUS$STARTING_RUNTIME", "Still waiting for the engine."));
    expect(model.progress.map((step) => step.label)).toEqual(["Starting the sandbox", "Still waiting for the engine."]);
  });

  it("says that it waits for the engine, and beside it why, until the engine is back", () => {
    const starting = status("STATUS$STARTING_RUNTIME", "Starting the sandbox");
    const model = liveModel(state(0, "loading"), starting, status("STATUS$WAITING_FOR_ENGINE", "It is away. Look at its log."));
    expect([model.progress.at(-1)?.label, model.warning]).toEqual(["Waiting for the Docker engine", "It is away. Look at its log."]);
    receive(model, starting);
    expect([model.progress.at(-1)?.label, model.warning]).toEqual(["Starting the sandbox", ""]);
    dispatch(model, { type: "info", info: info({ runtime_status: "STATUS$WAITING_FOR_ENGINE", runtime_warning: "Away." }) });
    expect(model.warning).toBe("Away.");
  });

  it("takes from the facts that the sandbox is frozen, and that it is no more", () => {
    const model = liveModel(state(0, "running"));
    dispatch(model, { type: "info", info: info({ runtime_status: "STATUS$ERROR_DISK_RESERVE", runtime_warning: "Nearly full." }) });
    expect([model.frozen, model.warning, phaseOf(model)]).toEqual(["Nearly full.", "", "working"]);
    dispatch(model, { type: "info", info: info() });
    expect([model.frozen, model.warning]).toEqual(["", ""]);
  });

  it("says that the sandbox is lost or frozen until it is there again, and what storage refuses until it works", () => {
    const model = liveModel(
      state(0, "running"),
      status("STATUS$ERROR_RUNTIME_DISCONNECTED", "The sandbox has gone.", "error"),
      status("STATUS$ERROR_DISK_RESERVE", "The disk is nearly full.", "error"),
      status("STATUS$LLM_RETRY", "Again"),
    );
    expect([model.notices.map((notice) => notice.text), model.frozen]).toEqual([["The sandbox has gone."], "The disk is nearly full."]);
    receive(model, status("STATUS$READY"));
    expect([model.notices, model.frozen]).toEqual([[], ""]);
    receive(model, status("STATUS$ERROR_STORAGE", "Nothing is stored.", "error"), { error: true, message: "Not stored." });
    expect(model.notices).toHaveLength(1);
    receive(model, status("STATUS$READY"));
    expect([model.notices, model.outage]).toEqual([[], ""]);
  });

  it("takes a stop for no step of the start", () => {
    const model = liveModel(state(0, "loading"), status("STATUS$STARTING_RUNTIME"), status("STATUS$STOPPED", "It was stopped."));
    expect(model.progress).toEqual([]);
  });

  it("is not ended by the old state that a server repeats when a sleeper wakes", () => {
    const model = createModel("c1");
    dispatch(model, { type: "history", events: [frame(state(5, "stopped"))], hasMore: false });
    dispatch(model, { type: "starting", starting: true, at: AT }, { type: "connection", connection: "live" });
    receive(model, state(5, "stopped"), state(null, "stopped"));
    expect(phaseOf(model)).toBe("starting");
    receive(model, state(6, "loading"), state(7, "awaiting_user_input"));
    expect(phaseOf(model)).toBe("ready");
  });
});

describe("messages on their way", () => {
  const held = { key: "p1", text: "hello", state: "held", after: 4 } as const;

  it("are replaced by their echo", () => {
    const model = liveModel(state(4, "awaiting_user_input"));
    dispatch(model, { type: "pending-add", message: held }, { type: "pending-sent", key: "p1", after: 4 });
    receive(model, userMessage(5, "hello"));
    expect(model.pending).toEqual([]);
    expect(model.timeline.items).toHaveLength(1);
  });

  it("are not taken for an older message of the same text", () => {
    const model = liveModel();
    dispatch(model, { type: "pending-add", message: { ...held, state: "sent", after: 4 } });
    receive(model, userMessage(3, "hello"));
    expect(model.pending).toHaveLength(1);
  });

  it("are confirmed one by one when the same text is sent twice", () => {
    const model = liveModel();
    dispatch(
      model,
      { type: "pending-add", message: { ...held, state: "sent" } },
      { type: "pending-add", message: { ...held, key: "p2", state: "sent" } },
    );
    receive(model, userMessage(5, "hello"));
    expect(model.pending.map((entry) => entry.key)).toEqual(["p2"]);
  });

  it("are also confirmed by the history", () => {
    const model = createModel("c1");
    dispatch(model, { type: "pending-add", message: { ...held, state: "created", after: -1 } });
    dispatch(model, { type: "history", events: [frame(userMessage(2, "hello"))], hasMore: false });
    expect(model.pending).toEqual([]);
  });
});

describe("frames besides events", () => {
  it("shows a retry until something comes from the model", () => {
    const model = liveModel(state(1, "running"), status("STATUS$LLM_RETRY", "Retrying LLM request, 2 / 5"));
    expect(model.retry).toBe("Retrying LLM request, 2 / 5");
    dispatch(model, { type: "delta", delta: { kind: "message", response_id: "r", text: "a" } });
    expect(model.retry).toBe("");
  });

  it("keeps a notice until it is dismissed, and does not repeat it", () => {
    const model = liveModel({ error: true, message: "no pictures" }, { error: true, message: "no pictures" });
    expect(model.notices.map((entry) => entry.text)).toEqual(["no pictures"]);
    dispatch(model, { type: "notice-dismiss", key: model.notices[0]?.key ?? "" });
    expect(model.notices).toEqual([]);
  });

  it("tells once that a session could not be started", () => {
    const failed = { status_update: true, type: "error", id: "STATUS$ERROR", message: "No water." };
    const model = liveModel({ error: true, message: "Failed to create agent session: No water." }, failed);
    expect(model.notices.map((entry) => entry.text)).toEqual(["No water."]);
  });

  it("keeps a warning about the network until the sandbox is started again, and takes it from the facts too", () => {
    const model = liveModel(status("STATUS$NETWORK_WARNING", "no network"), status("STATUS$READY", "ready"));
    expect(model.warning).toBe("no network");
    expect(model.progress.map((step) => step.label)).not.toContain("no network");
    receive(model, status("STATUS$STARTING_RUNTIME", "again"));
    expect(model.warning).toBe("");
    dispatch(model, { type: "info", info: info({ runtime_warning: "still none" }) });
    expect(model.warning).toBe("still none");
  });

  it("takes a new title for this conversation only", () => {
    const title = (id: string) => ({ status_update: true, type: "info", message: id, conversation_title: "New" });
    const model = liveModel(title("other"));
    expect(model.info?.title).toBe("A conversation");
    receive(model, title("c1"));
    expect(model.info?.title).toBe("New");
  });

  it("shows the newest metrics, also when older history is loaded after them", () => {
    const model = liveModel(run(9, "ls", {}, { llm_metrics: usage(900) }));
    const older = [8, 7].map((id) => frame(run(id, "ls", {}, { llm_metrics: usage(id * 100) })));
    dispatch(model, { type: "history", events: older, hasMore: false });
    expect(model.metrics).toEqual(usage(900));

    const fresh = createModel("c1");
    dispatch(fresh, { type: "history", events: older, hasMore: false });
    expect(fresh.metrics).toEqual(usage(800));
  });
});
