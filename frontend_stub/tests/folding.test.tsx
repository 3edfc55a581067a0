import { fireEvent, render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { describe, expect, it } from "vitest";
import { Folds, FoldsContext } from "../src/components/common/folds";
import { Markdown } from "../src/components/common/Markdown";
import { Picture } from "../src/components/common/Picture";
import { action, userMessage } from "./builders";
import { show, showItems } from "./drawing";

const lines = (count: number, prefix = "line") => Array.from({ length: count }, (_, index) => `${prefix} ${index}`).join("\n");
const fenced = (count: number) => `Look:\n\n\`\`\`text\n${lines(count)}\n\`\`\`\n`;
const table = (rows: number) => `| a | b |\n|---|---|\n${Array.from({ length: rows }, (_, row) => `| ${row} | x |`).join("\n")}`;

describe("long code in what the agent says", () => {
  it("is folded to its beginning and opens by the keyboard", async () => {
    const { container } = show(<Markdown text={fenced(80)} />);
    expect(container.querySelector("pre")?.textContent).toContain("line 29");
    expect(container.querySelector("pre")?.textContent).not.toContain("line 30");
    const button = screen.getByRole("button", { name: "Show all 80 lines", expanded: false });
    button.focus();
    await userEvent.keyboard("{Enter}");
    expect(container.querySelector("pre")?.textContent).toContain("line 79");
    expect(screen.getByRole("button", { name: "Show fewer lines", expanded: true })).toBe(document.activeElement);
  });

  it("stays open while more is written behind it, and when it is drawn again", async () => {
    const folds = new Folds();
    const draw = (text: string) => (
      <FoldsContext.Provider value={folds}>
        <Markdown text={text} />
      </FoldsContext.Provider>
    );
    const { rerender, unmount } = render(draw(fenced(80)));
    await userEvent.click(screen.getByRole("button", { name: "Show all 80 lines" }));
    rerender(draw(`${fenced(80)}\n\nAnd more.`));
    expect(screen.getByRole("button", { name: "Show fewer lines" })).toBeTruthy();
    unmount();
    render(draw(fenced(80)));
    expect(screen.getByRole("button", { name: "Show fewer lines" })).toBeTruthy();
  });

  it("is not folded for a few lines", () => {
    show(<Markdown text={fenced(36)} />);
    expect(screen.queryByRole("button", { name: /Show/ })).toBeNull();
  });
});

describe("a long table", () => {
  it("is folded, and takes the focus to be scrolled", async () => {
    show(<Markdown text={table(60)} />);
    const box = screen.getByRole("group", { name: "Table" });
    expect(box.tabIndex).toBe(0);
    expect(box.className).toContain("folded");
    await userEvent.click(screen.getByRole("button", { name: "Show all 60 rows" }));
    expect(box.className).not.toContain("folded");
  });

  it("is shown whole when it is short", () => {
    show(<Markdown text={table(25)} />);
    expect(screen.queryByRole("button")).toBeNull();
  });
});

describe("a long list of tasks", () => {
  const tasks = (done: number, count: number) =>
    Array.from({ length: count }, (_, id) => ({ id: String(id), title: `task ${id}.`, status: id < done ? "done" : "todo", notes: "" }));

  it("shows those around the one at hand, and all on request", async () => {
    showItems(action(1, "task_tracking", { command: "plan", task_list: tasks(12, 30) }));
    const card = screen.getByTestId("tasks-card");
    expect(card.querySelectorAll(".task")).toHaveLength(10);
    expect(card.textContent).toContain("task 10.");
    expect(card.textContent).toContain("task 19.");
    await userEvent.click(screen.getByRole("button", { name: "Show all 30 tasks" }));
    expect(card.querySelectorAll(".task")).toHaveLength(30);
  });

  it("shows the end of what is all done", () => {
    showItems(action(1, "task_tracking", { command: "plan", task_list: tasks(30, 30) }));
    expect(screen.getByTestId("tasks-card").textContent).toContain("task 29.");
  });
});

describe("a long message of the user", () => {
  it("is folded to its beginning", async () => {
    showItems(userMessage(1, lines(200)));
    expect(screen.getByTestId("user-message").textContent).not.toContain("line 20\n");
    await userEvent.click(screen.getByRole("button", { name: "Show all of the message" }));
    expect(screen.getByTestId("user-message").textContent).toContain("line 199");
  });
});

describe("a picture", () => {
  const load = (height: number) => {
    const { container } = show(<Picture src="data:image/png;base64,AA==" alt="a window" place="0" />);
    const image = screen.getByAltText("a window");
    Object.defineProperty(image, "offsetHeight", { value: height });
    fireEvent.load(image);
    return container;
  };

  it("that is tall is folded to its upper part", async () => {
    const container = load(2_000);
    expect(container.querySelector(".folded")).not.toBeNull();
    await userEvent.click(screen.getByRole("button", { name: "Show the whole picture" }));
    expect(container.querySelector(".folded")).toBeNull();
  });

  it("that is not is shown as it is", () => {
    load(300);
    expect(screen.queryByRole("button")).toBeNull();
  });
});
