import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createServices, ServicesContext } from "../src/app/services";
import { DockerHosts } from "../src/components/settings/DockerHosts";

const GIGABYTE = 1024 ** 3;
const UP = {
  name: "big",
  url: "tcp://10.0.0.5:2376",
  status: "up",
  reason: null,
  since: "2026-01-02T03:04:05Z",
  version: "20.10",
  processors: 8,
  memory: 32 * GIGABYTE,
  memory_free: 20 * GIGABYTE,
  sandboxes: 12,
  max_sandboxes: 124,
  has_image: true,
};
const LOST = { ...UP, name: "far", status: "lost", reason: "The Docker host 'far' cannot be reached: Connection refused." };

let listed: unknown[];
let sent: { path: string; body: unknown }[];
let refusal: string;

beforeEach(() => {
  listed = [UP, LOST];
  sent = [];
  refusal = "";
  vi.stubGlobal("fetch", (path: string, init: { method: string; body?: string }) => {
    const answer = (value: unknown, status = 200) => Promise.resolve(new Response(JSON.stringify(value), { status }));
    if (init.method === "GET") return answer({ results: listed });
    sent.push({ path, body: JSON.parse(init.body ?? "null") });
    if (refusal !== "") return answer({ detail: refusal }, 403);
    listed = [{ ...UP, status: "draining" }, LOST];
    return answer({});
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
});

function show() {
  return render(
    <ServicesContext.Provider value={createServices()}>
      <DockerHosts />
    </ServicesContext.Provider>,
  );
}

describe("the Docker hosts", () => {
  it("shows what each has, and of a lost one why and what becomes of its sandboxes", async () => {
    show();
    const [up, lost] = await screen.findAllByTestId("docker-host");
    expect(up?.textContent).toContain("20 of 32 GB free for sandboxes");
    expect(up?.textContent).toContain("12 of 124 run");
    expect(lost?.textContent).toContain("cannot be reached: Connection refused. Its 12 sandboxes wait for it");
    expect(screen.getAllByTestId("docker-host-drain")).toHaveLength(1);
  });

  it("drains one, and says so", async () => {
    show();
    await userEvent.click(await screen.findByRole("button", { name: "Drain big" }));
    expect(sent).toEqual([{ path: "/api/docker-hosts/big", body: { draining: true } }]);
    expect(await screen.findByRole("button", { name: "Use big again" })).not.toBeNull();
  });

  it("tells why one may not be drained", async () => {
    refusal = "Drain it in the configuration.";
    show();
    await userEvent.click(await screen.findByTestId("docker-host-drain"));
    expect((await screen.findByTestId("docker-hosts-error")).textContent).toContain("Drain it in the configuration.");
  });

  it("is not there where there is but one engine", async () => {
    listed = [];
    const { container } = show();
    await vi.waitFor(() => {
      expect(container.textContent).toBe("");
    });
  });
});
