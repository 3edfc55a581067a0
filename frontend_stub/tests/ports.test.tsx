import { render, screen, within } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createServices, ServicesContext } from "../src/app/services";
import { PortsPanel } from "../src/components/ports/PortsPanel";
import { toPorts } from "../src/protocol/ports";

const entry = { port: 8000, process: "python3", command: "python3 -m http.server", url: "http://8000-a.localhost:3000/?drydock_ticket=1" };

let body: unknown;
let tickets: number;

beforeEach(() => {
  tickets = 0;
  vi.stubGlobal("fetch", (path: string) => {
    tickets += 1;
    expect(path).toBe("/api/conversations/c%2F1/ports");
    return Promise.resolve(new Response(JSON.stringify(body)));
  });
});

afterEach(() => {
  vi.useRealTimers();
  vi.unstubAllGlobals();
});

function show() {
  return render(
    <ServicesContext.Provider value={createServices()}>
      <PortsPanel id="c/1" onClose={() => undefined} />
    </ServicesContext.Provider>,
  );
}

describe("ports", () => {
  it("lists what listens, opens it in a tab without a way back, and shows it in a frame that can do nothing here", async () => {
    body = { running: true, mode: "origin", ports: [entry] };
    show();
    const row = await screen.findByTestId("port");
    expect(row.textContent).toContain("8000");
    expect(row.textContent).toContain("python3");
    const link = within(row).getByRole("link");
    expect(link.getAttribute("href")).toBe(entry.url);
    expect(link.getAttribute("rel")).toBe("noopener noreferrer");
    await userEvent.click(within(row).getByRole("button", { name: "Show here" }));
    const frame = screen.getByTestId("ports-frame");
    expect(frame.getAttribute("src")).toBe(entry.url);
    const powers = frame.getAttribute("sandbox")?.split(" ") ?? [];
    expect(powers).toContain("allow-same-origin");
    expect(powers.some((power) => power.startsWith("allow-top-navigation"))).toBe(false);
    await userEvent.click(within(row).getByRole("button", { name: "Reload" }));
    expect(screen.getByTestId("ports-frame")).not.toBe(frame);
  });

  it("gives a preview under a path no origin", async () => {
    body = { running: true, mode: "path", ports: [entry] };
    show();
    await userEvent.click(await screen.findByRole("button", { name: "Show here" }));
    expect(screen.getByTestId("ports-frame").getAttribute("sandbox")).not.toContain("allow-same-origin");
  });

  it("says what is the matter when there is nothing to see", async () => {
    body = { running: false, mode: "origin", ports: [] };
    show();
    expect(await screen.findByText("The sandbox is not running.")).toBeTruthy();
  });

  it("keeps a frame as it is while the list is asked for again", async () => {
    vi.useFakeTimers({ shouldAdvanceTime: true });
    body = { running: true, mode: "origin", ports: [entry] };
    show();
    await userEvent.click(await screen.findByRole("button", { name: "Show here" }));
    const frame = screen.getByTestId("ports-frame");
    body = { running: true, mode: "origin", ports: [{ ...entry, url: `${entry.url}2` }] };
    const before = tickets;
    await vi.advanceTimersByTimeAsync(3100);
    expect(tickets).toBeGreaterThan(before);
    await vi.waitFor(() => {
      expect(screen.getByRole("link").getAttribute("href")).toBe(`${entry.url}2`);
    });
    expect(screen.getByTestId("ports-frame")).toBe(frame);
    expect(frame.getAttribute("src")).toBe(entry.url);
  });

  it("takes no address that is none of the web", () => {
    expect(toPorts({ running: true, mode: "x", ports: [{ port: 1, url: "javascript:alert(1)" }, { url: "http://a/" }, 3] })).toEqual({
      running: true,
      mode: "path",
      ports: [],
    });
  });
});
