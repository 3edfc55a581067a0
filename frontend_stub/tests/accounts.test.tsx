import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeAll, beforeEach, describe, expect, it, vi } from "vitest";
import { App } from "../src/App";
import { createServices } from "../src/app/services";

interface Answer {
  readonly status?: number;
  readonly body: unknown;
}

let routes: Record<string, (body: unknown) => Answer>;
let asked: (readonly [string, unknown])[];
let loaded: number;

let ways: string[];
const ANN = { name: "ann", role: "administrator", scopes: ["admin", "read", "write"] };

// What is loaded late is there already: how long a busy machine takes for it is not what is tested.
beforeAll(async () => {
  await import("../src/pages/AccountPages");
  await import("../src/components/settings/Account");
}, 60_000);

beforeEach(() => {
  asked = [];
  loaded = 0;
  ways = ["password"];
  vi.stubGlobal("fetch", (input: string, init?: RequestInit) => {
    const key = `${init?.method ?? "GET"} ${input.split("?")[0] ?? ""}`;
    const body: unknown = typeof init?.body === "string" ? JSON.parse(init.body) : null;
    asked.push([key, body]);
    const stranger = { status: 401, body: { detail: "Unauthorized", sign_in: ways } };
    const { status = 200, body: answer } = routes[key]?.(body) ?? stranger;
    return Promise.resolve(new Response(answer === null ? null : JSON.stringify(answer), { status }));
  });
  routes = {};
  window.localStorage.setItem("drydock.token", "an-old-token-of-this-server");
});

afterEach(() => {
  vi.unstubAllGlobals();
  window.localStorage.clear();
  window.history.replaceState(null, "", "/");
});

function open(address: string): void {
  window.history.replaceState(null, "", address);
  render(<App services={{ ...createServices(), loadAnew: () => { loaded += 1; } }} />);
}

describe("a server with accounts", () => {
  it("asks for a name and a password, and forgets a token of before", async () => {
    routes["POST /api/auth/sign-in"] = (body) =>
      (body as { password: string }).password === "right" ? { body: ANN } : { status: 401, body: { detail: "The name or the password is wrong." } };
    open("/");
    await userEvent.type(await screen.findByTestId("login-name"), " ann ");
    expect(screen.queryByTestId("login-provider")).toBeNull();
    await userEvent.type(screen.getByTestId("login-password"), "wrong{Enter}");
    expect(await screen.findByText("The name or the password is wrong.")).toBeTruthy();
    await userEvent.clear(screen.getByTestId("login-password"));
    await userEvent.type(screen.getByTestId("login-password"), "right{Enter}");
    await vi.waitFor(() => { expect(loaded).toBe(1); });
    expect(asked.at(-1)?.[1]).toEqual({ name: "ann", password: "right" });
    expect(window.localStorage.getItem("drydock.token")).toBeNull();
  });

  it("leads to the provider where there is one, and from there back to this page", async () => {
    ways = ["password", "oidc"];
    open("/conversations/x?tab=files");
    expect((await screen.findByTestId("login-provider")).getAttribute("href")).toBe(
      "/api/auth/oidc/begin?then=%2Fconversations%2Fx%3Ftab%3Dfiles",
    );
  });

  it("takes a link out of the address, and shows at its field what is refused", async () => {
    routes["POST /api/auth/link"] = () => ({ body: { name: null, role: "viewer", expires_at: "" } });
    routes["POST /api/auth/link/use"] = () => ({ status: 422, body: { detail: [{ loc: ["body", "name"], msg: "there is a user ann already" }] } });
    open("/welcome#link=once");
    expect((await screen.findByText(/Choose the name/)).textContent).toContain("You will be a viewer.");
    expect(window.location.hash).toBe("");
    await userEvent.type(screen.getByTestId("welcome-name"), "ann");
    await userEvent.type(screen.getByTestId("welcome-password"), "four unusual words{Enter}");
    expect(await screen.findByText("there is a user ann already")).toBeTruthy();
    expect(asked.at(-1)?.[1]).toEqual({ link: "once", name: "ann", password: "four unusual words" });
    expect(loaded).toBe(0);
  });

  it("says so where the link is none, or only a part of it was opened", async () => {
    routes["POST /api/auth/link"] = () => ({ status: 410, body: { detail: "This link no longer counts.", message: "This link no longer counts." } });
    open("/welcome#link=used");
    expect(await screen.findByText("This link no longer counts.")).toBeTruthy();
    expect(screen.getByTestId("login-submit")).toHaveProperty("disabled", true);
  });

  it("has tokens, sign-ins and users in the settings, and shows a new token once", async () => {
    const DRYDOCK = { version: "1", sandbox: { provider: "docker", reason: "" }, model: "m", demo: true, auth_required: true, settings_stored: false, account: ANN };
    const people = [{ name: "ann", email: null, role: "administrator", disabled: false, pending: false }];
    routes = {
      "GET /api/options/config": () => ({ body: { APP_MODE: "oss", DRYDOCK } }),
      "GET /api/options/models": () => ({ body: [] }),
      "GET /api/settings": () => ({ status: 404, body: { error: "Settings not found" } }),
      "GET /api/conversations": () => ({ body: { results: [], next_page_id: null } }),
      "GET /api/mcp-sign-ins": () => ({ body: { results: [] } }),
      "GET /api/docker-hosts": () => ({ body: { results: [] } }),
      "GET /api/secrets": () => ({ body: { custom_secrets: [] } }),
      "GET /api/auth/sign-ins": () => ({ body: { results: [{ id: "s1", address: "192.0.2.1", browser: "Firefox", used_at: "2026-11-29T10:00:00Z", current: true }] } }),
      "GET /api/auth/tokens": () => ({ body: { results: [] } }),
      "POST /api/auth/tokens": () => ({ status: 201, body: { id: "t1", name: "ci", token: "drydock_shown_once" } }),
      "GET /api/admin/users": () => ({ body: { results: people } }),
      "POST /api/admin/users": () => ({ status: 201, body: { path: "/welcome#link=for-bob", expires_at: "" } }),
      "PATCH /api/admin/users/ann": () => ({ status: 409, body: { detail: "ann is the only administrator; make somebody else one first" } }),
      "POST /api/auth/sign-out": () => ({ status: 204, body: null }),
    };
    open("/settings");
    expect((await screen.findByTestId("account-name")).textContent).toBe("ann");
    expect((await screen.findByTestId("sign-in")).textContent).toContain("192.0.2.1, this browser");
    await userEvent.type(screen.getByTestId("token-name"), "ci");
    await userEvent.click(screen.getByTestId("make-token"));
    expect((await screen.findByTestId("made-token")).textContent).toBe("drydock_shown_once");
    await userEvent.type(screen.getByTestId("person-name"), "bob");
    await userEvent.click(screen.getByTestId("add-person"));
    expect((await screen.findByTestId("person-link")).textContent).toContain("/welcome#link=for-bob");
    await userEvent.click(within(screen.getByTestId("person")).getByTestId("person-disable"));
    expect((await screen.findByTestId("people-error")).textContent).toContain("the only administrator");
    await userEvent.click(screen.getByTestId("account-sign-out"));
    await vi.waitFor(() => { expect(loaded).toBe(1); });
  });
});
