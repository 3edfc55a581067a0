import { render, screen, waitFor } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createServices, ServicesContext } from "../src/app/services";
import type { Services } from "../src/app/services";
import { Folds, FoldsContext } from "../src/components/common/folds";
import { sizeText } from "../src/components/workspace/files";
import { WorkspacePanel } from "../src/components/workspace/WorkspacePanel";

let services: Services;
let asked: string[];
let answers: Record<string, () => Response>;

const json = (body: unknown, status = 200) => () => new Response(JSON.stringify(body), { status });
const entry = (name: string, kind = "file", more: object = {}) => ({ name, kind, link: false, hidden: false, size: kind === "file" ? 3 : null, ...more });

beforeEach(() => {
  asked = [];
  vi.stubGlobal("fetch", (url: string, init?: RequestInit) => {
    const key = `${init?.method ?? "GET"} ${url.replace("/api/conversations/c1/", "")}`;
    asked.push(key);
    return Promise.resolve((answers[key] ?? json({ error: `nothing at ${key}` }, 404))());
  });
  answers = {
    "GET files?path=": json({ entries: [entry("src", "folder"), entry("a.txt"), entry(".git", "folder", { hidden: true })], left_out: 0 }),
    "GET files?path=src": json({ entries: [entry("deep.py")], left_out: 2 }),
    "GET select-file?file=src%2Fdeep.py": json({ code: "print('deep')" }),
    "GET git/status": json({
      repositories: [{ path: "", branch: "main", head: "0123456789", upstream: "origin/main", ahead: 1, behind: 0, changes: [{ status: "M", path: "a.txt" }], left_out: 0 }],
    }),
    "GET git/diff?path=a.txt": json({ original: "one\n", modified: "two\n" }),
    "GET git/log?repository=&skip=0&limit=50": json({
      commits: [{ hash: "abcdef0123", author: "Ann", date: "2026-01-01T00:00:00Z", subject: "first", body: "", refs: ["tag: v1"] }],
      has_more: false,
    }),
  };
  services = createServices();
});

afterEach(() => {
  vi.unstubAllGlobals();
});

function draw(awake = true) {
  return render(
    <ServicesContext.Provider value={services}>
      <FoldsContext.Provider value={new Folds()}>
        <WorkspacePanel id="c1" awake={awake} beat="ready" onClose={() => undefined} />
      </FoldsContext.Provider>
    </ServicesContext.Provider>,
  );
}

describe("the workspace beside a conversation", () => {
  it("shows its files folder by folder and opens one", async () => {
    draw();
    await userEvent.click(await screen.findByText("src"));
    expect(await screen.findByText("… and 2 more")).toBeTruthy();
    expect(screen.queryByText(".git")).toBeNull();
    await userEvent.click(screen.getByText("Show 1 hidden"));
    expect(screen.getByText(".git")).toBeTruthy();
    await userEvent.click(screen.getByText("deep.py"));
    expect((await screen.findByTestId("file-view")).textContent).toContain("src/deep.py");
    await waitFor(() => {
      expect(screen.getByTestId("file-view").textContent).toContain("print('deep')");
    });
    await userEvent.click(screen.getByLabelText("Back to the list"));
    expect(await screen.findByText("a.txt")).toBeTruthy();
  });

  it("shows what is changed and how, and what was committed", async () => {
    draw();
    await userEvent.click(screen.getByTestId("workspace-tab-changes"));
    expect((await screen.findByTestId("repository")).textContent).toContain("main");
    expect(screen.getByTestId("repository").textContent).toContain("1 ahead");
    await userEvent.click(screen.getByTestId("change"));
    const diff = await screen.findByTestId("diff");
    expect(diff.textContent).toContain("one");
    expect(diff.textContent).toContain("two");
    await userEvent.click(screen.getByTestId("workspace-tab-history"));
    expect((await screen.findByTestId("commits")).textContent).toContain("first");
  });

  it("compares with where the branch began when somebody wants that, and says with what", async () => {
    const repository = { path: "", branch: "work", head: "01", base: { name: "main", commit: "00" }, changes: [] };
    answers["GET git/status"] = json({ repositories: [repository] });
    answers["GET git/status?since=base"] = json({ repositories: [{ ...repository, changes: [{ status: "M", path: "b.txt" }] }] });
    answers["GET git/diff?path=b.txt&since=base"] = json({ original: "before\n", modified: "after\n" });
    draw();
    await userEvent.click(screen.getByTestId("workspace-tab-changes"));
    await userEvent.selectOptions(await screen.findByTestId("since"), "main");
    await userEvent.click(await screen.findByText("b.txt"));
    expect((await screen.findByTestId("diff")).textContent).toContain("before");
    await userEvent.click(screen.getByLabelText("Back to the list"));
    expect((await screen.findByTestId("since")).textContent).toContain("the last commit");
    expect(screen.getByText("b.txt")).toBeTruthy();
  });

  it("draws a picture", async () => {
    vi.stubGlobal("URL", Object.assign(URL, { createObjectURL: () => "blob:picture", revokeObjectURL: () => undefined }));
    answers["GET files?path="] = json({ entries: [entry("boat.PNG")], left_out: 0 });
    answers["GET download?path=boat.PNG"] = () => new Response("png");
    draw();
    await userEvent.click(await screen.findByText("boat.PNG"));
    expect((await screen.findByAltText("boat.PNG")).getAttribute("src")).toBe("blob:picture");
  });

  it("uploads chosen files, says what was skipped, and looks again", async () => {
    answers["POST upload-files"] = json({ uploaded_files: ["/workspace/new.txt"], skipped_files: [{ name: "bad", reason: "too odd" }] });
    draw();
    await screen.findByText("a.txt");
    await userEvent.upload(screen.getByTestId("upload-input"), [new File(["x"], "new.txt"), new File(["y"], "bad")]);
    await waitFor(() => {
      expect(asked.filter((one) => one === "GET files?path=")).toHaveLength(2);
    });
    const texts = services.toasts.list.getSnapshot().map((toast) => toast.text);
    expect(texts).toEqual(["1 file uploaded", "bad was not uploaded: too odd"]);
  });

  it("says why something cannot be shown, and asks for nothing while nothing runs", async () => {
    answers["GET files?path="] = json({ error: "Runtime not yet initialized" }, 404);
    const { unmount } = draw();
    expect(await screen.findByText("Runtime not yet initialized")).toBeTruthy();
    unmount();
    asked = [];
    draw(false);
    expect(screen.getByTestId("workspace-panel").textContent).toContain("while the conversation runs");
    expect(asked).toEqual([]);
  });

  it("names sizes shortly", () => {
    expect([0, 1023, 1024, 1536, 20 * 1024 * 1024].map(sizeText)).toEqual(["0 B", "1023 B", "1.0 KB", "1.5 KB", "20 MB"]);
  });
});
