import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { afterEach, beforeEach, describe, expect, it, vi } from "vitest";
import { createServices, ServicesContext } from "../src/app/services";
import { Secrets } from "../src/components/settings/Secrets";

let stored: { name: string; description: string }[];
let sent: { method: string; path: string; body: unknown }[];
let refusal: string;

beforeEach(() => {
  stored = [{ name: "SHOP_KEY", description: "Of the shop" }];
  sent = [];
  refusal = "";
  HTMLDialogElement.prototype.showModal = () => undefined;
  HTMLDialogElement.prototype.close = () => undefined;
  vi.stubGlobal("fetch", (path: string, init: { method: string; body?: string }) => {
    const body: unknown = init.body === undefined ? undefined : JSON.parse(init.body);
    if (init.method === "GET") return Promise.resolve(new Response(JSON.stringify({ custom_secrets: stored })));
    sent.push({ method: init.method, path, body });
    if (refusal !== "") return Promise.resolve(new Response(JSON.stringify({ error: refusal }), { status: 422 }));
    if (init.method === "POST") stored = [...stored, body as { name: string; description: string }];
    else stored = stored.filter((one) => path !== `/api/secrets/${one.name}`);
    return Promise.resolve(new Response(JSON.stringify({ message: "done" }), { status: init.method === "POST" ? 201 : 200 }));
  });
});

afterEach(() => {
  vi.unstubAllGlobals();
});

function show() {
  return render(
    <ServicesContext.Provider value={createServices()}>
      <Secrets />
    </ServicesContext.Provider>,
  );
}

describe("secrets", () => {
  it("lists names and descriptions, and adds one whose value is shown nowhere", async () => {
    const { container } = show();
    expect((await screen.findByTestId("secret")).textContent).toContain("Of the shop");
    await userEvent.type(screen.getByLabelText("Name"), " API_KEY ");
    await userEvent.type(screen.getByLabelText("Value"), "very-secret");
    await userEvent.type(screen.getByLabelText("Description"), "For tests");
    await userEvent.click(screen.getByTestId("secret-add"));
    expect(await screen.findAllByTestId("secret")).toHaveLength(2);
    expect(sent).toEqual([{ method: "POST", path: "/api/secrets", body: { name: "API_KEY", value: "very-secret", description: "For tests" } }]);
    expect(screen.getByLabelText("Value")).toHaveProperty("value", "");
    expect(container.innerHTML).not.toContain("very-secret");
  });

  it("names what is wrong with a name, and sends nothing", async () => {
    show();
    await screen.findByTestId("secret");
    await userEvent.type(screen.getByLabelText("Value"), "v");
    for (const [name, says] of [["my-key", "underscores"], ["SHOP_KEY", "Delete it first"]] as const) {
      await userEvent.clear(screen.getByLabelText("Name"));
      await userEvent.type(screen.getByLabelText("Name"), name);
      await userEvent.click(screen.getByTestId("secret-add"));
      expect(screen.getByLabelText("Name").getAttribute("aria-invalid")).toBe("true");
      expect(screen.getByTestId("secrets").textContent).toContain(says);
    }
    expect(sent).toEqual([]);
  });

  it("deletes one after asking", async () => {
    show();
    await userEvent.click(await screen.findByTestId("delete-secret"));
    expect(sent).toEqual([]);
    await userEvent.click(screen.getByTestId("confirm-ok"));
    await vi.waitFor(() => {
      expect(screen.queryByTestId("secret")).toBeNull();
    });
    expect(sent).toEqual([{ method: "DELETE", path: "/api/secrets/SHOP_KEY", body: undefined }]);
  });

  it("keeps what was typed when the server refuses it, and says why", async () => {
    refusal = "value: it is too long";
    show();
    await screen.findByTestId("secret");
    await userEvent.type(screen.getByLabelText("Name"), "KEY");
    await userEvent.type(screen.getByLabelText("Value"), "v");
    await userEvent.click(screen.getByTestId("secret-add"));
    expect((await screen.findByTestId("secrets-error")).textContent).toBe("The change could not be stored. value: it is too long");
    expect(screen.getByLabelText("Name")).toHaveProperty("value", "KEY");
  });
});
