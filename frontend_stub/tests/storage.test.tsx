import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { App } from "../src/App";
import { createServices } from "../src/app/services";
import { chooseTheme, theme } from "../src/app/theme";
import { Shelf, tabShelf } from "../src/net/storage";
import { isToken, TokenKeeper } from "../src/net/token";

const refuse = () => {
  throw new DOMException("no", "SecurityError");
};

/** As a browser whose user forbids all storage: even looking at it throws. */
function forbidStorage(): void {
  vi.spyOn(window, "localStorage", "get").mockImplementation(refuse);
  vi.spyOn(window, "sessionStorage", "get").mockImplementation(refuse);
}

describe("a shelf", () => {
  it("keeps what it is given in the browser's storage", () => {
    tabShelf.write("a", "1");
    expect(window.sessionStorage.getItem("a")).toBe("1");
    expect(tabShelf.read("a")).toBe("1");
    tabShelf.remove("a");
    expect(tabShelf.read("a")).toBeNull();
  });

  it.each([
    ["forbidden", new Shelf(refuse)],
    ["full", new Shelf(() => Object.assign(Object.create(window.sessionStorage) as Storage, { setItem: refuse }))],
  ])("whose storage is %s remembers as long as it lives", (_name, shelf) => {
    shelf.write("b", "2");
    expect(shelf.read("b")).toBe("2");
    expect(window.sessionStorage.getItem("b")).toBeNull();
    shelf.remove("b");
    expect(shelf.read("b")).toBeNull();
  });
});

describe("a kept token", () => {
  it("that no header can carry is none", () => {
    window.sessionStorage.setItem("drydock.token", "{\"old\":\n1}");
    window.localStorage.setItem("drydock.token", "schlüssel-😀");
    expect(new TokenKeeper().token).toBeNull();
    expect(["", "two\nlines", "😀", "abc123-_."].map(isToken)).toEqual([false, false, false, true]);
  });
});

describe("the page without storage", () => {
  beforeEach(() => {
    const answers: Readonly<Record<string, unknown>> = {
      "/api/options/config": { APP_MODE: "oss", FEATURE_FLAGS: {} },
      "/api/conversations": { results: [], next_page_id: null },
    };
    vi.stubGlobal("fetch", (address: string, { method }: RequestInit) => {
      const body = method === "GET" ? answers[address.split("?")[0] ?? ""] : undefined;
      return Promise.resolve(new Response(JSON.stringify(body ?? {}), { status: body === undefined ? 500 : 200 }));
    });
    window.history.replaceState(null, "", "/#token=abc");
  });

  afterEach(() => {
    vi.unstubAllGlobals();
    vi.restoreAllMocks();
    chooseTheme("system");
  });

  it("draws, takes a token, a theme and a draft, and gives the draft back when it could not be sent", async () => {
    forbidStorage();
    const services = createServices();
    render(<App services={services} />);
    expect(services.keeper.token).toBe("abc");
    await userEvent.click(screen.getByTestId("theme-toggle"));
    expect(theme.getSnapshot()).toBe("light");
    await userEvent.type(screen.getByTestId("composer-input"), "build a boat{Enter}");
    await screen.findByTestId("create-error");
    expect(screen.getByTestId("composer-input")).toHaveProperty("value", "build a boat");
    services.keeper.forget();
    expect(services.keeper.token).toBeNull();
  });
});
