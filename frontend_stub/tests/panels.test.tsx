import { render, screen } from "@testing-library/react";
import userEvent from "@testing-library/user-event";
import { useState } from "react";
import { describe, expect, it } from "vitest";
import { followViewport } from "../src/app/viewport";
import { usePanel } from "../src/components/common/usePanel";

function Panel({ onClose }: { readonly onClose: () => void }) {
  const panel = usePanel(onClose);
  return (
    <aside ref={panel} aria-label="Panel" tabIndex={-1}>
      <button type="button">Inside</button>
    </aside>
  );
}

function Page() {
  const [open, setOpen] = useState(false);
  return (
    <>
      <button type="button" onClick={() => { setOpen(!open); }}>
        Toggle
      </button>
      {open && <Panel onClose={() => { setOpen(false); }} />}
    </>
  );
}

describe("a panel", () => {
  it("takes the focus, closes on Escape, and gives the focus back", async () => {
    render(<Page />);
    await userEvent.click(screen.getByText("Toggle"));
    expect(document.activeElement).toBe(screen.getByRole("complementary", { name: "Panel" }));
    await userEvent.tab();
    expect(document.activeElement).toBe(screen.getByText("Inside"));
    await userEvent.keyboard("{Escape}");
    expect(screen.queryByRole("complementary")).toBeNull();
    expect(document.activeElement).toBe(screen.getByText("Toggle"));
  });

  it("leaves Escape to what is typed elsewhere", async () => {
    render(<Page />);
    await userEvent.click(screen.getByText("Toggle"));
    screen.getByText("Toggle").focus();
    await userEvent.keyboard("{Escape}");
    expect(screen.getByRole("complementary")).toBeTruthy();
  });
});

describe("the height of the page", () => {
  const height = () => document.documentElement.style.getPropertyValue("--seen-height");

  it("is what an on-screen keyboard leaves of it, but not what zooming in leaves", () => {
    const viewport = Object.assign(new EventTarget(), { height: 800, scale: 1 });
    const change = (next: { readonly height: number; readonly scale: number }) => {
      Object.assign(viewport, next).dispatchEvent(new Event("resize"));
    };
    const end = followViewport(viewport as unknown as VisualViewport);
    expect(height()).toBe("800px");
    change({ height: 420, scale: 1 });
    expect(height()).toBe("420px");
    change({ height: 400, scale: 2 });
    expect(height()).toBe("");
    end();
    change({ height: 500, scale: 1 });
    expect(height()).toBe("");
  });
});
