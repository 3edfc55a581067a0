import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createServices, ServicesContext } from "../src/app/services";
import { Sidebar } from "../src/components/shell/Sidebar";
import { info } from "./builders";

const TITLES = ["Tide clock", "Boat", "Lighthouse", "Harbour", "Sail", "Anchor", "Second boat", "Rope"];

let asked: string[];
/** Answers to these queries wait until they are let go. */
let held: Map<string, () => void>;

function answer(address: string): Promise<Response> {
  const path = new URL(address, "http://localhost");
  if (path.pathname !== "/api/conversations") return Promise.resolve(new Response("{}", { status: 404 }));
  const query = path.searchParams.get("query") ?? "";
  asked.push(query);
  const titles = TITLES.filter((title) => title.toLowerCase().includes(query.toLowerCase()));
  const results = titles.map((title) => info({ conversation_id: title, title }));
  const response = new Response(JSON.stringify({ results, next_page_id: null }));
  if (!held.has(query)) return Promise.resolve(response);
  return new Promise((resolve) => {
    held.set(query, () => {
      resolve(response);
    });
  });
}

async function shown(): Promise<readonly string[]> {
  await screen.findAllByTestId("conversation-list");
  return screen.queryAllByTestId("conversation-item").map((item) => item.querySelector(".conversation-title")?.textContent ?? "");
}

function open() {
  const services = createServices();
  const view = render(
    <ServicesContext value={services}>
      <Sidebar onLeave={() => undefined} />
    </ServicesContext>,
  );
  const end = services.conversations.watch();
  return () => {
    end();
    view.unmount();
  };
}

beforeEach(() => {
  asked = [];
  held = new Map();
  vi.stubGlobal("fetch", answer);
});

afterEach(() => {
  vi.unstubAllGlobals();
});

describe("the search field", () => {
  it("asks the server once for what was typed, and for all again after Escape", async () => {
    const close = open();
    const field = await screen.findByTestId("search-field");
    await userEvent.type(field, " boat ");
    await vi.waitFor(async () => {
      expect([...(await shown())].sort()).toEqual(["Boat", "Second boat"]);
    });
    expect(asked).toEqual(["", "boat"]);
    await userEvent.keyboard("{Escape}");
    await vi.waitFor(async () => {
      expect(await shown()).toHaveLength(TITLES.length);
    });
    expect([field.getAttribute("value"), document.activeElement === field]).toEqual(["", true]);
    close();
  });

  it("says that nothing was found, and keeps the field", async () => {
    const close = open();
    await userEvent.type(await screen.findByTestId("search-field"), "whale");
    expect(await screen.findByText("No conversation has “whale” in its title, its repository or its id.")).toBeTruthy();
    expect(screen.getByTestId("search-field")).toBeTruthy();
    close();
  });

  it("shows nothing of an answer that comes after that to a later question", async () => {
    const close = open();
    held.set("boat", () => undefined);
    const field = await screen.findByTestId("search-field");
    await userEvent.type(field, "boat");
    await vi.waitFor(() => {
      expect(asked).toContain("boat");
    });
    await userEvent.clear(field);
    await userEvent.type(field, "rope");
    await vi.waitFor(async () => {
      expect(await shown()).toEqual(["Rope"]);
    });
    held.get("boat")?.();
    await new Promise((resolve) => setTimeout(resolve, 50));
    expect(await shown()).toEqual(["Rope"]);
    close();
  });

  it("is not there for a few, which are found at a glance", async () => {
    TITLES.splice(7);
    const close = open();
    await screen.findAllByTestId("conversation-item");
    expect(screen.queryByTestId("search-field")).toBeNull();
    close();
  });
});
