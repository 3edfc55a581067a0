import { render, screen } from "@testing-library/react";
import { describe, expect, it } from "vitest";
import { isolated } from "../src/app/isolated";
import { Visible } from "../src/components/common/Visible";
import { ApprovalBar } from "../src/components/conversation/ApprovalBar";
import { isAction } from "../src/protocol/events";
import type { ActionEvent } from "../src/protocol/events";
import { action, liveModel, observation, ran, run, userMessage } from "./builders";
import { showItems } from "./drawing";

/** Makes what follows it be drawn from right to left. */
const OVERRIDE = "\u202e";
const HEBREW = "שלום";

function shown(text: string): string {
  return render(<Visible text={text} />).container.textContent;
}

describe("characters that hide", () => {
  it("stand there by their number", () => {
    expect(shown(`photo_${OVERRIDE}gnp.sh`)).toBe("photo_U+202Egnp.sh");
    expect(shown("a\u200bb\u0007c\u2066d\u{e0041}")).toBe("aU+200BbU+0007cU+2066dU+E0041");
    expect(shown("safe\rrm")).toBe("safeU+000Drm");
    expect(screen.getAllByTitle("Hidden character U+202E")).toHaveLength(1);
  });

  it("are not what scripts, emoji and the ends of lines are made of", () => {
    for (const text of [HEBREW, "می\u200cخواهم", "👩\u200d🔧", "a\r\nb\r", "\ttab\n"]) expect(shown(text)).toBe(text);
  });

  it("are seen in a command that waits for approval and in one that ran", () => {
    const asks = run(1, `echo ${OVERRIDE}fr- mr`, { confirmation_state: "awaiting_confirmation" });
    const [item] = liveModel(asks).timeline.items;
    if (item?.action === null || item?.action === undefined || !isAction(item.action)) throw new Error("no action");
    const actions: readonly ActionEvent[] = [item.action];
    render(<ApprovalBar actions={actions} onAnswer={() => undefined} />);
    expect(screen.getByTestId("approval-bar").textContent).toContain("echo U+202Efr- mr");
    showItems(run(1, `touch ${OVERRIDE}x`), ran(2, 1, `made ${OVERRIDE}x`));
    expect(screen.getByTestId("command-card").textContent).toContain("touch U+202Ex");
    expect(screen.getByTestId("command-card").textContent).toContain("made U+202Ex");
  });

  it("are seen in the names of files", () => {
    showItems(
      action(1, "edit", { path: `/workspace/${OVERRIDE}gnp.sh`, command: "create", file_text: "x" }),
      observation(2, "edit", "done", { path: `/workspace/${OVERRIDE}gnp.sh`, prev_exist: false, old_content: "", new_content: "x" }, { cause: 1 }),
    );
    expect(screen.getByTestId("edit-card").textContent).toContain("U+202Egnp.sh");
  });
});

describe("what people write", () => {
  it("has the direction of its own letters", () => {
    showItems(userMessage(1, HEBREW), action(2, "message", { content: HEBREW }, { message: HEBREW }));
    expect(screen.getByText(HEBREW, { selector: ".user-text" }).getAttribute("dir")).toBe("auto");
    expect(screen.getByText(HEBREW, { selector: "p" }).parentElement?.getAttribute("dir")).toBe("auto");
  });

  it("is a unit within a sentence, from which nothing leaks", () => {
    expect(isolated("Tide clock")).toBe("Tide clock");
    expect(isolated(HEBREW)).toBe(`\u2068${HEBREW}\u2069`);
    expect(isolated(`evil\u2069${OVERRIDE}`)).toBe("\u2068evil\u2069");
  });
});
