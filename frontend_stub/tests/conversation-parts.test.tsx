import { fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it, vi } from "vitest";
import { Folds, FoldsContext } from "../src/components/common/folds";
import { Markdown } from "../src/components/common/Markdown";
import { Announcer } from "../src/components/conversation/Announcer";
import { ApprovalBar } from "../src/components/conversation/ApprovalBar";
import { Composer } from "../src/components/conversation/Composer";
import { Notices, Warning } from "../src/components/conversation/Notices";
import { StatusBar } from "../src/components/conversation/StatusBar";
import { GoingBackContext } from "../src/components/conversation/goingBack";
import { isStretch, rowsOf } from "../src/components/conversation/rows";
import { UndoneLine } from "../src/components/items/RewindLine";
import { isAction } from "../src/protocol/events";
import { phaseOf } from "../src/state/phase";
import { action, agentMessage, dispatch, frame, liveModel, receive, observation, ran, run, state, userMessage } from "./builders";
import { showItems } from "./drawing";

describe("agent text", () => {
  it("is drawn as markdown, never as HTML", () => {
    const { container } = render(
      <Markdown text={'**bold** <img src=x onerror="alert(1)"> <script>alert(1)</script> [go](javascript:alert(1)) ![pic](https://elsewhere/x.png)'} />,
    );
    expect(container.querySelector("strong")?.textContent).toBe("bold");
    expect(container.querySelector("img, script")).toBeNull();
    expect([...container.querySelectorAll("a")].map((link) => link.getAttribute("href"))).toEqual(["", "https://elsewhere/x.png"]);
  });

  it("keeps tables and code apart from prose", () => {
    const { container } = render(<Markdown text={"| a | b |\n|---|---|\n| 1 | 2 |\n\n```python\nx = 1\n```\n\nUse `x`."} />);
    expect(container.querySelectorAll("td")).toHaveLength(2);
    expect(container.querySelector("pre")?.textContent).toBe("x = 1");
    expect(container.querySelector("p > code")?.textContent).toBe("x");
  });
});

describe("what was undone", () => {
  const log = [
    userMessage(1, "Build a boat"),
    run(2, "make boat"),
    ran(3, 2, "done"),
    action(4, "rewind", { to: 1, note: "" }, { source: "user" }),
    observation(5, "rewind", "", { files_of: 1 }, { cause: 4 }),
    run(6, "make ship"),
  ];

  it("is told in words that a person understands, with what became of the files", () => {
    showItems(...log);
    expect(screen.getByTestId("rewind-line").textContent).toBe(
      "The conversation was taken back to right after your message “Build a boat”. The files are as they were then.",
    );
  });

  it("is one line that opens, and brings it back", async () => {
    const { timeline } = liveModel(...log);
    const folds = new Folds();
    const goBack = vi.fn();
    const rows = () => rowsOf(timeline.items, folds);
    expect(rows().map((row) => row.key)).toEqual(["e1", "undone:e2", "e4", "e6"]);
    const stretch = rows().find(isStretch);
    if (stretch === undefined) throw new Error("nothing is undone");
    folds.set(stretch.key, true);
    expect(rows().map((row) => row.key)).toEqual(["e1", "undone:e2", "e2", "e4", "e6"]);
    render(
      <FoldsContext.Provider value={folds}>
        <GoingBackContext.Provider value={{ goBack, fork: vi.fn() }}>
          <UndoneLine stretch={stretch} />
        </GoingBackContext.Provider>
      </FoldsContext.Provider>,
    );
    await userEvent.click(screen.getByTestId("bring-back"));
    expect(goBack.mock.calls).toEqual([[3]]);
  });
});

describe("the writing box", () => {
  const box = (onSend: (text: string) => void, disabled = false) => (
    <Composer draftKey="draft" label="Message" placeholder="" disabled={disabled} onSend={onSend} />
  );

  it("sends on Enter and begins a new line on Shift+Enter", async () => {
    const onSend = vi.fn();
    render(box(onSend));
    const field = screen.getByLabelText("Message");
    await userEvent.type(field, "one{Shift>}{Enter}{/Shift}two{Enter}");
    expect(onSend.mock.calls).toEqual([["one\ntwo"]]);
    expect(field).toHaveProperty("value", "");
  });

  it("sends nothing but spaces", async () => {
    const onSend = vi.fn();
    render(box(onSend));
    await userEvent.type(screen.getByLabelText("Message"), "  {Enter}");
    expect(onSend).not.toHaveBeenCalled();
  });

  it("can be written in while sending is not possible", async () => {
    const onSend = vi.fn();
    render(box(onSend, true));
    const field = screen.getByLabelText("Message");
    await userEvent.type(field, "later{Enter}");
    expect(onSend).not.toHaveBeenCalled();
    expect(field).toHaveProperty("value", "later");
    expect(screen.getByTestId("send-button")).toHaveProperty("disabled", true);
  });

  it("keeps an unsent draft", async () => {
    const { unmount } = render(box(vi.fn()));
    await userEvent.type(screen.getByLabelText("Message"), "half a thou");
    unmount();
    render(box(vi.fn()));
    expect(screen.getByLabelText("Message")).toHaveProperty("value", "half a thou");
  });

  it("leaves Enter to the input method while a character is composed", () => {
    const onSend = vi.fn();
    render(box(onSend));
    const field = screen.getByLabelText("Message");
    fireEvent.change(field, { target: { value: "か" } });
    fireEvent.keyDown(field, { key: "Enter", isComposing: true });
    expect(onSend).not.toHaveBeenCalled();
  });
});

describe("the status line", () => {
  const showStatus = (...payloads: readonly unknown[]) => {
    const onRequest = vi.fn();
    const model = liveModel(...payloads);
    render(<StatusBar model={model} phase={phaseOf(model)} onRequest={onRequest} onRetry={vi.fn()} />);
    return onRequest;
  };

  it("offers to pause and to stop a working agent", async () => {
    const onRequest = showStatus(state(1, "running"));
    await userEvent.click(screen.getByTestId("pause-button"));
    await userEvent.click(screen.getByTestId("stop-button"));
    expect(onRequest.mock.calls).toEqual([["paused"], ["stopped"]]);
  });

  it("offers to resume a paused one", async () => {
    const onRequest = showStatus(state(1, "paused"));
    await userEvent.click(screen.getByTestId("resume-button"));
    expect(onRequest.mock.calls).toEqual([["running"]]);
    expect(screen.queryByTestId("stop-button")).toBeNull();
  });

  it("tells the reason of an error", () => {
    showStatus(state(1, "error", "AgentStuckInLoopError: Agent got stuck in a loop"));
    expect(screen.getByTestId("status-text").textContent).toMatch(/round in circles/);
  });
});

describe("approval", () => {
  it("names the deed, warns of high risk, and is answered by button or keyboard", async () => {
    const onAnswer = vi.fn();
    const model = liveModel(run(1, "rm -rf build", { confirmation_state: "awaiting_confirmation", security_risk: 2 }));
    render(<ApprovalBar actions={model.history.filter(isAction)} onAnswer={onAnswer} />);
    expect(screen.getByTestId("approval-bar").textContent).toContain("rm -rf build");
    expect(screen.getByText(/high risk/)).toBeTruthy();
    await userEvent.click(screen.getByTestId("approve-button"));
    await userEvent.click(screen.getByTestId("reject-button"));
    fireEvent.keyDown(window, { key: "Enter", ctrlKey: true });
    fireEvent.keyDown(window, { key: "Backspace", metaKey: true, shiftKey: true });
    expect(onAnswer.mock.calls).toEqual([["approve", ""], ["reject", ""], ["approve", ""], ["reject", ""]]);
    fireEvent.click(screen.getByTestId("approve-for-good-button"));
    expect(onAnswer).toHaveBeenLastCalledWith("approve-for-good", "");
    await userEvent.type(screen.getByTestId("reject-reason"), "Use make clean{Enter}");
    expect(onAnswer).toHaveBeenLastCalledWith("reject", "Use make clean");
  });
});

describe("what is to be approved", () => {
  it.each([
    ["task_tracking", {}, "The agent wants to change its list of tasks."],
    ["browse", { url: "http://x/" }, "The agent wants to open a page.http://x/"],
    ["browse_interactive", { browser_actions: 'click("1")' }, 'The agent wants to use its browser.click("1")'],
    ["delegate", {}, "The agent wants to have a sub-agent work."],
    ["novel_deed", {}, "The agent wants to do “novel deed”."],
  ])("%s is a sentence", (name, args, sentence) => {
    const model = liveModel(action(1, name, { ...args, confirmation_state: "awaiting_confirmation" }));
    render(<ApprovalBar actions={model.history.filter(isAction)} onAnswer={vi.fn()} />);
    expect(screen.getByTestId("approval-bar").textContent).toContain(sentence);
  });
});

describe("approval of several actions", () => {
  it("names all of them, and warns when one of them is risky", () => {
    const asked = { confirmation_state: "awaiting_confirmation" };
    const model = liveModel(run(1, "rm -rf build", { ...asked, security_risk: 2 }), action(2, "edit", { ...asked, path: "/a.py" }));
    render(<ApprovalBar actions={model.history.filter(isAction)} onAnswer={vi.fn()} />);
    const text = screen.getByTestId("approval-bar").textContent;
    for (const part of ["do 2 things", "rm -rf build", "/a.py", "high risk", "Approve all", "Reject all"]) expect(text).toContain(part);
  });
});

describe("notices", () => {
  it("leave a warning about the network where it is until it is over", () => {
    const { rerender } = render(<Warning kind="warning" text="This sandbox has no network" />);
    expect(screen.getByTestId("warning").textContent).toBe("This sandbox has no network");
    expect(screen.queryByRole("button")).toBeNull();
    rerender(<Warning kind="warning" text="" />);
    expect(screen.queryByTestId("warning")).toBeNull();
  });

  it("say what to do and can be dismissed", async () => {
    const onDismiss = vi.fn();
    const notice = { key: "n1", level: "error", text: "401", statusId: "STATUS$ERROR_LLM_AUTHENTICATION" } as const;
    render(<Notices notices={[notice]} onDismiss={onDismiss} />);
    expect(screen.getByTestId("notice").textContent).toContain("Check the key");
    await userEvent.click(screen.getByTestId("notice-dismiss"));
    expect(onDismiss).toHaveBeenCalledWith("n1");
  });
});

describe("what is read aloud", () => {
  const spoken = () => screen.getByTestId("spoken-message").textContent;

  it("is each new message of the agent, once it is whole, and nothing of the history", () => {
    const model = liveModel();
    const { rerender } = render(<Announcer phase="ready" model={{ ...model }} />);
    dispatch(model, { type: "history", events: [frame(agentMessage(1, "long ago"))], hasMore: false });
    rerender(<Announcer phase="ready" model={{ ...model }} />);
    expect(spoken()).toBe("");
    dispatch(model, { type: "delta", delta: { kind: "message", response_id: "r", text: "Now I" } });
    receive(model, run(2, "ls"), ran(3, 2, "a b c"));
    rerender(<Announcer phase="working" model={{ ...model }} />);
    expect(spoken()).toBe("");
    receive(model, agentMessage(4, "Now I know."));
    rerender(<Announcer phase="ready" model={{ ...model }} />);
    expect(spoken()).toBe("The agent said: Now I know.");
    receive(model, action(5, "finish", { final_thought: "All done." }));
    rerender(<Announcer phase="finished" model={{ ...model }} />);
    expect(spoken()).toBe("The agent said: All done.");
  });
});
