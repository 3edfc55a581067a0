import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { App } from "../src/App";
import { createServices } from "../src/app/services";
import type { Services } from "../src/app/services";
import { isRepository } from "../src/components/conversation/repository";
import { info } from "./builders";

type Route = (body: unknown, token: string | null) => { readonly status?: number; readonly body: unknown };

let routes: Record<string, Route>;
let services: Services;
let asked: string[];

const answer = (input: string, init?: RequestInit): Promise<Response> => {
  const path = input.split("?")[0] ?? "";
  const key = `${init?.method ?? "GET"} ${path}`;
  asked.push(key);
  const route = routes[key];
  const text = typeof init?.body === "string" ? init.body : "null";
  const token = new Headers(init?.headers).get("x-session-api-key");
  const { status = 200, body } = route?.(JSON.parse(text), token) ?? { status: 404, body: { error: "unknown" } };
  return Promise.resolve(new Response(JSON.stringify(body), { status }));
};

beforeEach(() => {
  asked = [];
  vi.stubGlobal("fetch", answer);
  window.history.replaceState(null, "", "/");
  routes = {
    "GET /api/options/config": () => ({ body: { APP_MODE: "oss", FEATURE_FLAGS: {} } }),
    "GET /api/options/models": () => ({ body: ["demo/tour"] }),
    "GET /api/settings": () => ({ status: 404, body: { error: "Settings not found" } }),
    "GET /api/conversations": () => ({ body: { results: [info({ title: "Tide clock" })], next_page_id: null } }),
  };
  services = createServices();
});

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("the first page", () => {
  it("invites, says that the demo answers, and lists the conversations", async () => {
    render(<App services={services} />);
    expect(await screen.findByTestId("demo-note")).toBeTruthy();
    expect(screen.getAllByTestId("example-prompt")).toHaveLength(3);
    expect((await screen.findByTestId("conversation-item")).textContent).toContain("Tide clock");
  });

  it("keeps what was written when the conversation cannot be created", async () => {
    routes["POST /api/conversations"] = () => ({ status: 500, body: { error: "disk full" } });
    render(<App services={services} />);
    await userEvent.type(screen.getByTestId("composer-input"), "build a boat{Enter}");
    expect((await screen.findByTestId("create-error")).textContent).toContain("disk full");
    expect(screen.getByTestId("composer-input")).toHaveProperty("value", "build a boat");
  });

  it("asks again by itself where what is in the way may pass, until it is given up", async () => {
    const tries: string[] = [];
    routes["POST /api/conversations"] = () => {
      tries.push("again");
      if (tries.length < 3) return { status: 503, body: { detail: "no memory", message: "no memory" } };
      return { body: { status: "ok", conversation_id: "c9", conversation_status: "STARTING" } };
    };
    routes["GET /api/conversations/c9"] = () => ({ body: null });
    vi.useFakeTimers({ shouldAdvanceTime: true });
    const user = userEvent.setup({ advanceTimers: vi.advanceTimersByTime });
    try {
      render(<App services={services} />);
      await user.type(screen.getByTestId("composer-input"), "build a boat{Enter}");
      expect((await screen.findByTestId("create-error")).textContent).toContain("no memory It is tried again by itself.");
      await user.click(screen.getByTestId("create-give-up"));
      await vi.advanceTimersByTimeAsync(10_000);
      expect([tries.length, screen.queryByTestId("create-error")]).toEqual([1, null]);
      await user.type(screen.getByTestId("composer-input"), "{Enter}");
      await screen.findByTestId("create-error");
      await vi.advanceTimersByTimeAsync(4_000);
      await vi.waitFor(() => {
        expect(window.location.pathname).toBe("/conversations/c9");
      });
      expect(tries).toHaveLength(3);
    } finally {
      vi.useRealTimers();
    }
  });

  it("creates a conversation with the first message and goes there", async () => {
    let sent: unknown;
    routes["POST /api/conversations"] = (body) => {
      sent = body;
      return { body: { status: "ok", conversation_id: "c9", conversation_status: "STARTING" } };
    };
    routes["GET /api/conversations/c9"] = () => ({ body: null });
    render(<App services={services} />);
    await userEvent.type(screen.getByTestId("composer-input"), "build a boat{Enter}");
    await vi.waitFor(() => {
      expect(window.location.pathname).toBe("/conversations/c9");
    });
    expect(sent).toEqual({ initial_user_msg: "build a boat" });
    expect(await screen.findByTestId("not-found")).toBeTruthy();
  });
});

describe("a repository to begin with", () => {
  beforeEach(() => {
    routes["POST /api/conversations"] = (body) => {
      sent = body;
      return { status: 500, body: { error: "not now" } };
    };
  });
  let sent: unknown;

  it("is asked for when somebody wants one, and sent with its branch", async () => {
    render(<App services={services} />);
    expect(screen.queryByTestId("repository-name")).toBeNull();
    await userEvent.click(screen.getByTestId("add-repository"));
    await userEvent.type(screen.getByTestId("repository-name"), " ann/boats ");
    await userEvent.type(screen.getByTestId("repository-branch"), "next");
    await userEvent.type(screen.getByTestId("composer-input"), "build{Enter}");
    expect((await screen.findByTestId("create-error")).textContent).toContain("not now");
    expect(sent).toEqual({ initial_user_msg: "build", repository: "ann/boats", selected_branch: "next" });
    await userEvent.click(screen.getByLabelText("Begin without a repository"));
    await userEvent.type(screen.getByTestId("composer-input"), "{Enter}");
    await vi.waitFor(() => {
      expect(sent).toEqual({ initial_user_msg: "build" });
    });
  });

  it("is looked at before anything is sent", async () => {
    sent = null;
    render(<App services={services} />);
    await userEvent.click(screen.getByTestId("add-repository"));
    await userEvent.type(screen.getByTestId("repository-name"), "https://me@host/boats");
    expect(screen.getByText(/without a user's name/)).toBeTruthy();
    await userEvent.type(screen.getByTestId("composer-input"), "build{Enter}");
    expect(sent).toBeNull();
  });

  it.each([
    ["ann/boats", true],
    ["group/sub/boats.git", true],
    ["https://git.example.com/boats", true],
    ["http://127.0.0.1:8080/ann/boats.git/", true],
    ["boats", false],
    ["ann/../boats", false],
    ["git@host:ann/boats", false],
    ["ann boats/x", false],
  ])("may be %s: %s", (text, expected) => {
    expect(isRepository(text)).toBe(expected);
  });
});

describe("the list", () => {
  it("renames in place", async () => {
    let title: unknown;
    routes["PATCH /api/conversations/c1"] = (body) => {
      title = body;
      return { body: true };
    };
    render(<App services={services} />);
    await userEvent.dblClick(within(await screen.findByTestId("conversation-item")).getByText("Tide clock"));
    const field = screen.getByTestId("rename-input");
    await userEvent.clear(field);
    await userEvent.type(field, "Ebb and flow{Enter}");
    expect(title).toEqual({ title: "Ebb and flow" });
    expect((await screen.findByTestId("conversation-item")).textContent).toContain("Ebb and flow");
  });

  it("deletes only after a question", async () => {
    routes["DELETE /api/conversations/c1"] = () => ({ body: true });
    render(<App services={services} />);
    await userEvent.click(await screen.findByTestId("delete-conversation"));
    await userEvent.click(screen.getByTestId("confirm-cancel"));
    expect(asked).not.toContain("DELETE /api/conversations/c1");
    await userEvent.click(screen.getByTestId("delete-conversation"));
    await userEvent.click(screen.getByTestId("confirm-ok"));
    await vi.waitFor(() => {
      expect(screen.queryByTestId("conversation-item")).toBeNull();
    });
  });
});

describe("a server with a token", () => {
  it("shows the door, refuses a wrong token and opens for the right one", async () => {
    for (const [key, route] of Object.entries(routes)) {
      routes[key] = (body, token) => (token === "right" ? route(body, token) : { status: 401, body: { detail: "Unauthorized" } });
    }
    render(<App services={services} />);
    const field = await screen.findByTestId("login-token");
    await userEvent.type(field, "wrong{Enter}");
    await vi.waitFor(() => {
      expect(screen.getByTestId("login-error").textContent).toContain("does not accept");
    });
    await userEvent.clear(field);
    await userEvent.type(field, "right{Enter}");
    expect(await screen.findByTestId("conversation-item")).toBeTruthy();
    expect(window.sessionStorage.getItem("drydock.token")).toBe("right");
    expect(window.localStorage.getItem("drydock.token")).toBeNull();
  });
});

describe("settings", () => {
  it("store a model and its key, and never show the key", async () => {
    let stored: Record<string, unknown> | null = null;
    routes["GET /api/settings"] = () =>
      stored === null ? { status: 404, body: { error: "Settings not found" } } : { body: { llm_model: stored.llm_model, llm_api_key: null, llm_api_key_set: true } };
    routes["POST /api/settings"] = (body) => {
      stored = body as Record<string, unknown>;
      return { body: { message: "Settings stored" } };
    };
    window.history.replaceState(null, "", "/settings");
    render(<App services={services} />);
    await userEvent.type(await screen.findByTestId("settings-model"), "openai/gpt-5");
    await userEvent.type(screen.getByTestId("settings-api-key"), "sk-1");
    await userEvent.click(screen.getByTestId("settings-save"));
    await vi.waitFor(() => {
      expect(screen.getByTestId("settings-api-key").dataset.set).toBe("true");
    });
    expect(stored).toMatchObject({ llm_model: "openai/gpt-5", llm_api_key: "sk-1" });
    expect(screen.getByTestId("settings-api-key")).toHaveProperty("value", "");
  });

  it("show at its field what the server refuses, and keep what was written", async () => {
    const message = "llm_base_url: the port is a number from 1 to 65535, such as http://127.0.0.1:11434/v1";
    const detail = [{ type: "value_error", loc: ["body", "llm_base_url"], msg: message }];
    routes["POST /api/settings"] = () => ({ status: 422, body: { detail, message } });
    window.history.replaceState(null, "", "/settings");
    render(<App services={services} />);
    await userEvent.type(await screen.findByTestId("settings-base-url"), "http://a.example:0");
    await userEvent.click(screen.getByTestId("settings-save"));
    const shown = await screen.findByTestId("settings-error");
    expect(shown.getAttribute("role")).toBe("alert");
    expect(shown.textContent).toContain("could not be stored. See the marked field.");
    const field = screen.getByTestId("settings-base-url");
    expect(field).toHaveProperty("value", "http://a.example:0");
    expect(field.getAttribute("aria-invalid")).toBe("true");
    expect(document.activeElement).toBe(field);
    const help = document.getElementById(field.getAttribute("aria-describedby") ?? "");
    expect(help?.textContent).toBe("the port is a number from 1 to 65535, such as http://127.0.0.1:11434/v1");
  });

  it("say at once that nothing is stored yet, then why it is not, and never that it is", async () => {
    let answers: (status: number) => void = () => undefined;
    const post = new Promise<number>((resolve) => {
      answers = resolve;
    });
    vi.stubGlobal("fetch", async (input: string, init?: RequestInit) => {
      if (init?.method !== "POST") return await answer(input, init);
      return new Response(JSON.stringify({ error: "The change could not be stored: the disk is full" }), { status: await post });
    });
    window.history.replaceState(null, "", "/settings");
    render(<App services={services} />);
    await screen.findByTestId("settings-model");
    await userEvent.click(screen.getByTestId("settings-save"));
    expect((await screen.findByTestId("not-yet")).textContent).toContain("Not stored yet");
    answers(507);
    expect((await screen.findByTestId("settings-error")).textContent).toBe("The change could not be stored: the disk is full");
    expect([screen.queryByTestId("not-yet"), screen.queryByText(/^Saved/)]).toEqual([null, null]);
  });

  it("are saved, whatever becomes of reading them again", async () => {
    routes["POST /api/settings"] = () => {
      routes["GET /api/settings"] = () => ({ status: 503, body: { error: "The disk is full" } });
      return { body: { message: "Settings stored" } };
    };
    window.history.replaceState(null, "", "/settings");
    render(<App services={services} />);
    await screen.findByTestId("settings-model");
    await userEvent.click(screen.getByTestId("settings-save"));
    expect((await screen.findByTestId("settings-error")).textContent).toBe("The settings are saved, but could not be read again. The disk is full");
    expect(screen.getByText(/^Saved/)).toBeTruthy();
  });

  it("say that nobody knows whether they are stored when no answer came", async () => {
    vi.stubGlobal("fetch", (input: string, init?: RequestInit) =>
      init?.method === "POST" ? Promise.reject(new TypeError("Failed to fetch")) : answer(input, init),
    );
    window.history.replaceState(null, "", "/settings");
    render(<App services={services} />);
    await screen.findByTestId("settings-model");
    await userEvent.click(screen.getByTestId("settings-save"));
    expect((await screen.findByTestId("settings-error")).textContent).toContain("It is not known whether the settings could be stored.");
  });

  it("say as a whole what the server refuses and the form has no field for", async () => {
    const detail = [{ type: "value_error", loc: ["body", "agent"], msg: "there is no such agent" }];
    routes["POST /api/settings"] = () => ({ status: 422, body: { detail, message: "agent: there is no such agent" } });
    window.history.replaceState(null, "", "/settings");
    render(<App services={services} />);
    await screen.findByTestId("settings-base-url");
    await userEvent.click(screen.getByTestId("settings-save"));
    expect((await screen.findByTestId("settings-error")).textContent).toContain("agent: there is no such agent");
  });
});
