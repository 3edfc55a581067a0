import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createServices, ServicesContext } from "../src/app/services";
import { McpSignIns } from "../src/components/settings/McpSignIns";
import { ErrorCard } from "../src/components/items/SmallCards";
import { Folds, FoldsContext } from "../src/components/common/folds";
import type { ObservationEvent } from "../src/protocol/events";
import { observation } from "./builders";

const WANTED = { id: "a".repeat(32), server: "https://tickets.example/mcp", state: "wanted", scope: null };
const DONE = { id: "b".repeat(32), server: "https://mail.example/mcp", state: "signed_in", scope: "read" };

let listed: unknown[];
let sent: { method: string; path: string; body: unknown }[];
let url: string;
let refusal: string;
const assign = vi.fn();

beforeEach(() => {
  listed = [WANTED, DONE];
  sent = [];
  url = "https://as.example/authorize?state=x";
  refusal = "";
  assign.mockClear();
  vi.stubGlobal("location", { assign, pathname: "/conversations/c1", search: "", hash: "", href: "http://localhost/" });
  vi.stubGlobal("fetch", (path: string, init: { method: string; body?: string }) => {
    const answer = (value: unknown, status = 200) => Promise.resolve(new Response(JSON.stringify(value), { status }));
    if (init.method === "GET") return answer({ results: listed });
    sent.push({ method: init.method, path, body: init.body === undefined ? undefined : JSON.parse(init.body) });
    if (refusal !== "") return answer({ detail: refusal }, 409);
    if (init.method === "POST") return answer({ url });
    listed = [WANTED];
    return answer({ revoked: false, message: "HTTP status 500" });
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
});

function show(element: React.ReactElement) {
  return render(
    <ServicesContext.Provider value={createServices()}>
      <FoldsContext.Provider value={new Folds()}>{element}</FoldsContext.Provider>
    </ServicesContext.Provider>,
  );
}

describe("sign-ins with MCP servers", () => {
  it("lists where one is signed in and where that is wanted, and leads to the page to sign in", async () => {
    show(<McpSignIns />);
    const [wanted, done] = await screen.findAllByTestId("mcp-server");
    expect(wanted?.textContent).toContain("Wants you to sign in");
    expect(done?.textContent).toContain("Signed in (read)");
    await userEvent.click(screen.getByTestId("mcp-sign-in"));
    expect(sent).toEqual([{ method: "POST", path: `/api/mcp-sign-ins/${WANTED.id}`, body: { conversation_id: null } }]);
    expect(assign).toHaveBeenCalledWith(url);
  });

  it("signs out, and tells what did not work", async () => {
    show(<McpSignIns />);
    await userEvent.click(await screen.findByTestId("mcp-sign-out"));
    expect((await screen.findByTestId("mcp-sign-ins-error")).textContent).toContain("HTTP status 500");
    expect(screen.getAllByTestId("mcp-server")).toHaveLength(1);
  });

  it("is not there where no server is signed in to", async () => {
    listed = [];
    const { container } = show(<McpSignIns />);
    await Promise.resolve();
    expect(container.textContent).toBe("");
  });

  it("opens nothing but a page, and shows why a sign-in cannot begin", async () => {
    url = "javascript:alert(1)";
    show(<McpSignIns />);
    await userEvent.click(await screen.findByTestId("mcp-sign-in"));
    expect((await screen.findByTestId("mcp-sign-in-error")).textContent).toContain("javascript:");
    refusal = "The sign-in cannot begin: it is another one.";
    await userEvent.click(screen.getByTestId("mcp-sign-in"));
    expect((await screen.findByTestId("mcp-sign-in-error")).textContent).toContain("another one");
    expect(assign).not.toHaveBeenCalled();
  });

  it("stands in the conversation, comes back to it, and says when it is done", async () => {
    const event = observation(3, "error", "sign in", { error_id: "", sign_in: WANTED.id }) as ObservationEvent;
    const { unmount } = show(<ErrorCard foldKey="k" observation={event} />);
    expect(screen.getByTestId("error-card").textContent).toContain("wants you to sign in");
    await userEvent.click(await screen.findByRole("button", { name: `Sign in to ${WANTED.server}` }));
    expect(sent[0]?.body).toEqual({ conversation_id: "c1" });
    unmount();
    listed = [{ ...WANTED, state: "signed_in" }];
    show(<ErrorCard foldKey="k" observation={event} />);
    expect(await screen.findByText(/You are signed in/)).toBeTruthy();
    expect(screen.queryByTestId("mcp-sign-in")).toBeNull();
  });
});
