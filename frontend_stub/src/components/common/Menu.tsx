/** A button with a small menu. The browser's popover closes it on Escape and on a click elsewhere. */
import { useId, useRef } from "react";
import type { KeyboardEvent, ReactNode } from "react";

export interface MenuEntry {
  readonly label: string;
  readonly onSelect: () => void;
  readonly danger?: boolean;
  readonly testId?: string;
}

interface MenuProps {
  readonly label: string;
  readonly entries: readonly MenuEntry[];
  readonly children: ReactNode;
  readonly className?: string;
  readonly testId?: string;
}

const GAP = 4;
const MARGIN = 8;

function place(menu: HTMLElement, button: HTMLElement): void {
  const at = button.getBoundingClientRect();
  const width = menu.offsetWidth;
  const height = menu.offsetHeight;
  const below = at.bottom + GAP + height <= window.innerHeight - MARGIN;
  const left = Math.max(MARGIN, Math.min(at.right - width, window.innerWidth - width - MARGIN));
  menu.style.left = `${left}px`;
  menu.style.top = `${below ? at.bottom + GAP : Math.max(MARGIN, at.top - GAP - height)}px`;
}

export function Menu({ label, entries, children, className = "icon-button", testId }: MenuProps) {
  const id = useId();
  const button = useRef<HTMLButtonElement>(null);
  const menu = useRef<HTMLDivElement>(null);

  const buttons = () => [...(menu.current?.querySelectorAll("button") ?? [])];

  const toggle = () => {
    if (menu.current === null || button.current === null) return;
    if (menu.current.matches(":popover-open")) {
      menu.current.hidePopover();
      return;
    }
    menu.current.showPopover();
    place(menu.current, button.current);
    buttons()[0]?.focus();
  };

  const onKeyDown = (event: KeyboardEvent) => {
    const all = buttons();
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = all.findIndex((entry) => entry === document.activeElement);
    all[(at + step + all.length) % all.length]?.focus();
  };

  return (
    <>
      <button
        ref={button}
        type="button"
        className={className}
        aria-label={label}
        title={label}
        aria-haspopup="menu"
        aria-controls={id}
        data-testid={testId}
        onClick={toggle}
      >
        {children}
      </button>
      <div ref={menu} id={id} className="menu" popover="auto" role="menu" tabIndex={-1} onKeyDown={onKeyDown}>
        {entries.map((entry) => (
          <button
            key={entry.label}
            type="button"
            role="menuitem"
            className={entry.danger === true ? "menu-entry danger" : "menu-entry"}
            data-testid={entry.testId}
            onClick={() => {
              menu.current?.hidePopover();
              entry.onSelect();
            }}
          >
            {entry.label}
          </button>
        ))}
      </div>
    </>
  );
}
