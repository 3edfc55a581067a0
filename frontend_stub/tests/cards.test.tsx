import { screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { TimelineRow } from "../src/components/items/TimelineRow";
import { action, agentMessage, liveModel, observation, ran, run, state, userMessage } from "./builders";
import { show, showItems, showItemsOf } from "./drawing";

describe("a command", () => {
  it("draw a command with its end and its exit status", () => {
    showItems(run(1, "make test", { thought: "Let me see." }), ran(2, 1, "boom", 2));
    const card = screen.getByTestId("command-card");
    expect(card.dataset.status).toBe("failed");
    expect(within(card).getByTestId("command-verdict").textContent).toBe("exit 2");
    expect(screen.getByTestId("thought").textContent).toBe("Let me see.");
    expect(card.textContent).toContain("boom");
  });

  it("fold a long command, and do not repeat it where there is no output", async () => {
    const command = ["cat > a <<'END'", ...Array.from({ length: 20 }, (_, index) => `text ${index}`), "END"].join("\n");
    showItems(run(1, command), { ...ran(2, 1, ""), message: `Command \`${command}\` executed with exit code 0.` });
    const card = screen.getByTestId("command-card");
    expect(card.textContent).toContain("No output");
    expect(card.textContent).not.toContain("text 15");
    await userEvent.click(screen.getByRole("button", { name: "Show 14 more lines" }));
    expect(card.textContent).toContain("text 15");
  });

  it("do not let a command run for ever in a conversation that sleeps", () => {
    showItemsOf(false, [run(1, "make")]);
    expect(screen.getByTestId("command-verdict").textContent).toBe("no result");
  });

  it("fold long output to its end and open it on request", async () => {
    const output = Array.from({ length: 100 }, (_, index) => `line ${index}`).join("\n");
    showItems(run(1, "seq"), ran(2, 1, output));
    expect(screen.queryByText(/line 3\n/)).toBeNull();
    expect(screen.getByLabelText("Output").textContent).toContain("line 99");
    await userEvent.click(screen.getByRole("button", { name: "Show 86 earlier lines" }));
    expect(screen.getByLabelText("Output").textContent).toContain("line 3\n");
  });

  it("say that a stopped command was stopped, with what it had printed", () => {
    const text = "Stopped by the user while it ran. Its output until then:\nstarted\n";
    const stopped = observation(2, "error", text, { error_id: "AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED" }, { cause: 1 });
    showItems(run(1, "sleep 600"), stopped);
    expect(screen.getByTestId("command-verdict").textContent).toBe("stopped");
    expect(screen.getByTestId("command-card").textContent).toContain("started");
  });
});

describe("files", () => {
  it("say that an edit failed, why, and what was wanted", async () => {
    showItems(
      action(1, "edit", { path: "/workspace/a.py", command: "str_replace", old_str: "absent", new_str: "x" }),
      observation(2, "edit", "ERROR:\nNo replacement was performed", { path: "/workspace/a.py", new_content: null }, { cause: 1 }),
    );
    const card = screen.getByTestId("edit-card");
    expect(card.textContent).toContain("Could not edit a.py");
    expect(card.textContent).toContain("No replacement was performed");
    expect(card.textContent).not.toContain("ERROR:");
    expect(screen.queryByTestId("diff")).toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "What it wanted to change" }));
    expect(screen.getByTestId("diff").textContent).toContain("absent");
  });

  it("say what a search found, and list the files", () => {
    showItems(
      action(1, "call_tool_mcp", { name: "grep", arguments: { pattern: "class", path: "/workspace/src", include: "*.py" } }),
      observation(
        2,
        "mcp",
        "Found 2 file(s) containing pattern 'class' in '/workspace/src' (filtered by '*.py'):\n/workspace/src/a.py\n/workspace/src/b.py\n[1 directory could not be read.]",
        { name: "grep", arguments: {} },
        { cause: 1 },
      ),
    );
    const card = screen.getByTestId("search-card");
    expect(card.textContent).toContain("Searched for class in *.py in src · 2 files");
    expect(within(screen.getByLabelText("Files")).getAllByRole("listitem").map((file) => file.textContent)).toEqual(["src/a.py", "src/b.py"]);
    expect(card.textContent).toContain("1 directory could not be read.");
  });

  it("say that a search found nothing, or why there was none", () => {
    const search = (id: number) => action(id, "call_tool_mcp", { name: "glob", arguments: { pattern: "*.rs" } });
    const error = JSON.stringify({ content: [{ type: "text", text: "/none does not exist; give a directory." }], isError: true });
    showItems(
      search(1),
      observation(2, "mcp", "No files found matching pattern '*.rs' in '/workspace'.", { name: "glob" }, { cause: 1 }),
      search(3),
      observation(4, "mcp", error, { name: "glob" }, { cause: 3 }),
    );
    const [nothing, wrong] = screen.getAllByTestId("search-card");
    expect(nothing?.textContent).toContain("Looked for files named *.rs · no files");
    expect(wrong?.textContent).toContain("/none does not exist; give a directory.");
    expect(wrong?.textContent).not.toContain("isError");
  });

  it("show the lines of a file under their numbers, and the entries of a folder", async () => {
    showItems(
      action(1, "read", { path: "/workspace/a.py", view_range: [3, 4] }),
      observation(2, "read", "The lines of /workspace/a.py, as with `cat -n`:\n     3\tclass A:\n     4\t    pass\n", {}, { cause: 1 }),
      action(3, "read", { path: "/workspace" }),
      observation(4, "read", "The files and directories in /workspace, up to 2 levels deep, without hidden ones:\n/workspace/\n/workspace/src/a.py\n", {}, { cause: 3 }),
    );
    await userEvent.click(screen.getByRole("button", { name: /^Read.*lines 3 to 4$/ }));
    expect(screen.getByLabelText("File content").querySelector("code")?.textContent).toBe("class A:\n    pass");
    await userEvent.click(screen.getByRole("button", { name: /^Looked into.*1 entry$/ }));
    expect(within(screen.getByLabelText("Folder")).getByRole("listitem").textContent).toBe("src/a.py");
  });

  it("name each file of a change of several", () => {
    const diff = "--- a/one.py\n+++ b/one.py\n@@ -1 +1 @@\n-a\n+b\n--- /dev/null\n+++ b/two.py\n@@ -0,0 +1 @@\n+c\n";
    showItems(action(1, "edit", { path: "one.py, two.py" }), observation(2, "edit", "Done.", { path: "one.py, two.py", diff }, { cause: 1 }));
    expect(screen.getAllByRole("columnheader").map((head) => head.textContent)).toEqual(["one.py", "two.py"]);
  });

  it("draw an edit as a diff", () => {
    showItems(
      action(1, "edit", { path: "/workspace/a.py", command: "str_replace" }),
      observation(2, "edit", "ok", { path: "/workspace/a.py", diff: "@@ -1 +1 @@\n-old\n+new\n" }, { cause: 1 }),
    );
    const card = screen.getByTestId("edit-card");
    expect(card.textContent).toContain("Edited a.py");
    expect([...card.querySelectorAll("tr")].map((row) => row.className)).toEqual(["diff-line removed", "diff-line added"]);
  });
});

describe("what tools did", () => {
  it("say which sub-agents were asked what, what they do, and what they reported", async () => {
    const asked = action(1, "delegate", { agent: "eyes, hands", inputs: { eyes: "Look.", hands: "Do it." } });
    const item = liveModel(asked).timeline.items[0];
    if (item === undefined) throw new Error("no item");
    const steps = "[eyes] terminal: ls\n";
    const { unmount } = show(<TimelineRow item={item} liveOutput={steps} deadline="" awake />);
    expect(screen.getByTestId("delegate-card").textContent).toContain("Asked the sub-agents eyes, hands");
    expect(screen.getByTestId("live-output").textContent).toBe(steps);
    unmount();
    const report = "Completed delegation of 2 tasks\n1. Agent eyes: seen\n2. Agent hands: done";
    showItems(asked, observation(2, "delegate", report, { outputs: {} }, { cause: 1 }));
    await userEvent.click(screen.getByRole("button", { name: /Asked the sub-agents/ }));
    expect(screen.getByTestId("delegate-card").textContent).toContain("eyesLook.handsDo it.");
    expect(screen.getByLabelText("Report").textContent).toBe(report);
  });

  it.each([
    [{ agent: "a", inputs: { command: "spawn", ids: ["a", "b"], agent_types: [] } }, "Made sub-agents: a, b"],
    [{ agent: "bash", inputs: { task: "Run it.", description: "Run the tests" } }, "Asked a sub-agent: Run the tests"],
    [{ agent: "BrowsingAgent", inputs: { task: "Look it up." } }, "Asked a sub-agent: BrowsingAgent"],
    [{ agent: "a", inputs: { a: "Look." } }, "Asked the sub-agent a"],
  ])("say what the call for sub-agents %# is about", (args, title) => {
    showItems(action(1, "delegate", args));
    expect(screen.getByTestId("delegate-card").textContent).toContain(title);
  });

  it("open the report of a sub-agent that failed", () => {
    const failed = "Task ID: task_00000001\nSubagent: bash\nStatus: error\n\nIt was stopped before it was done.";
    showItems(
      action(1, "delegate", { agent: "bash", inputs: { task: "Run it." } }),
      observation(2, "delegate", failed, { outputs: {} }, { cause: 1 }),
    );
    expect(screen.getByLabelText("Report").textContent).toBe(failed);
  });

  it("draw rows of data as a table", () => {
    const rows = JSON.stringify([{ ship: "Ada", length: 12 }, { ship: "Eve", sails: true }]);
    showItems(
      action(1, "call_tool_mcp", { name: "ships", arguments: { harbour: "Oslo" } }),
      observation(2, "mcp", JSON.stringify({ content: [{ type: "text", text: rows }] }), { name: "ships" }, { cause: 1 }),
    );
    const texts = (role: string) => screen.getAllByRole(role).map((cell) => cell.textContent);
    expect(texts("columnheader")).toEqual(["ship", "length", "sails"]);
    expect(texts("cell")).toEqual(["Ada", "12", "", "Eve", "", "true"]);
    expect(screen.getByTestId("mcp-card").textContent).toContain("harbourOslo");
  });

  it("say until when a client has time to answer a call", () => {
    const deadline = "2026-05-04T12:30:15Z";
    const model = liveModel(action(1, "call_tool_mcp", { name: "ask_db", arguments: {} }));
    const [item] = model.timeline.items;
    if (item === undefined) throw new Error("there is no item");
    show(<TimelineRow item={item} liveOutput="" deadline={deadline} awake />);
    expect(screen.getByTestId("mcp-card").textContent).toContain(`until ${new Date(deadline).toLocaleTimeString()}`);
  });

  it("show what a cell has drawn", () => {
    showItems(
      action(1, "run_ipython", { code: "plot()" }),
      observation(2, "run_ipython", "", { code: "plot()", image_urls: ["data:image/png;base64,AAAA", "https://elsewhere.example/x.png"] }, { cause: 1 }),
    );
    expect(screen.getAllByRole("img").map((image) => image.getAttribute("src"))).toEqual(["data:image/png;base64,AAAA"]);
  });

  it("show the texts and images of a server's tool", () => {
    const content = [{ type: "text", text: "Look:" }, { type: "image", data: "AAAA", mimeType: "image/png" }, null, { type: "image", data: 1 }];
    showItems(
      action(1, "call_tool_mcp", { name: "draw", arguments: { what: "boat" } }),
      observation(2, "mcp", JSON.stringify({ content, isError: false }), { name: "draw", arguments: {} }, { cause: 1 }),
    );
    const card = screen.getByTestId("mcp-card");
    expect(card.textContent).toContain("Look:");
    expect(card.textContent).not.toContain("isError");
    expect(screen.getAllByRole("img").map((image) => image.getAttribute("src"))).toEqual(["data:image/png;base64,AAAA"]);
  });

  it.each([
    [userMessage(1, "hi"), "user-message"],
    [agentMessage(1, "hi"), "agent-message"],
    [action(1, "finish", { final_thought: "done" }), "finish-card"],
    [action(1, "think", { thought: "hm" }), "think-card"],
    [action(1, "read", { path: "/a" }), "read-card"],
    [action(1, "edit", { path: "/a", command: "view" }), "read-card"],
    [action(1, "write", { path: "/a", content: "x" }), "edit-card"],
    [action(1, "call_tool_mcp", { name: "t" }), "mcp-card"],
    [action(1, "call_tool_mcp", { name: "grep", arguments: { query: "x" } }), "mcp-card"],
    [action(1, "call_tool_mcp", { name: "grep", arguments: { pattern: "x" } }), "search-card"],
    [action(1, "delegate", { agent: "bash", inputs: { task: "x" } }), "delegate-card"],
    [observation(1, "delegate", "done", { outputs: {} }), "delegate-card"],
    [action(1, "task_tracking", { task_list: [{ title: "a", status: "done" }] }), "tasks-card"],
    [action(1, "condensation", { summary: "s" }), "condensation-card"],
    [action(1, "system", { content: "p" }), "system-line"],
    [action(1, "reject", {}, { message: "no" }), "notice-line"],
    [action(1, "dance", {}), "generic-card"],
    [observation(1, "recall", "", { recall_type: "workspace_context" }), "recall-line"],
    [observation(1, "error", "bad"), "error-card"],
    [observation(1, "loop_detection", "again"), "notice-line"],
    [observation(1, "browse", "text", { url: "http://x" }), "browser-card"],
    [action(1, "browse", { url: "http://x" }), "browser-card"],
  ])("have a card for event %#", (payload, testId) => {
    showItems(payload);
    expect(screen.getByTestId(testId)).toBeTruthy();
  });

  it("show the browser's window, and nothing that would have to be fetched", () => {
    const picture = "data:image/jpeg;base64,AAAA";
    showItems(
      action(1, "browse_interactive", { browser_actions: "fill('1', 'a')\nclick('2')", thought: "" }),
      observation(2, "browse", "[2] button", { url: "http://x/", screenshot: picture, error: true }, { cause: 1 }),
      action(3, "browse", { url: "http://y", thought: "" }),
      observation(4, "browse", "text", { url: "http://y/", screenshot: "https://elsewhere/x.png" }, { cause: 3 }),
    );
    const [first, second] = screen.getAllByTestId("browser-card");
    expect(first?.textContent).toContain("fill('1', 'a') and 1 more · http://x/");
    expect(first?.textContent).toContain("[2] button");
    expect(first?.querySelector(".step-mark.bad")).not.toBeNull();
    expect(first?.querySelector("img")?.getAttribute("src")).toBe(picture);
    expect(second?.textContent).toContain("Opened http://y");
    expect(second?.querySelector("img")).toBeNull();
  });

  it("explain an error by its id and say what to do", () => {
    showItems(state(1, "error", "STATUS$ERROR_LLM_AUTHENTICATION"));
    const card = screen.getByTestId("error-card");
    expect(card.textContent).toContain("The model provider refused the API key");
    expect(within(card).getByRole("link", { name: "Open settings" })).toBeTruthy();
    const page = within(card).getByRole("link", { name: "What this means" });
    expect(page.getAttribute("href")).toBe("/errors/STATUS%24ERROR_LLM_AUTHENTICATION");
  });
});
