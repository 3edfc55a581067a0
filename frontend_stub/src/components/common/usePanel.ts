/** A panel that opens over or beside the page: the focus goes into it, Escape closes it, and the focus comes back. */
import { useEffect, useRef } from "react";
import type { RefObject } from "react";

/** What has a claim to Escape before the panel: dialogs, menus and fields in which something is written. */
const CLAIMS = "dialog[open], :popover-open";

export function usePanel(onClose: () => void): RefObject<HTMLElement | null> {
  const panel = useRef<HTMLElement>(null);
  const close = useRef(onClose);
  useEffect(() => {
    close.current = onClose;
  });
  useEffect(() => {
    const element = panel.current;
    const opener = document.activeElement instanceof HTMLElement ? document.activeElement : null;
    element?.focus();
    const onKeyDown = (event: KeyboardEvent) => {
      if (event.key !== "Escape" || event.defaultPrevented || document.querySelector(CLAIMS) !== null) return;
      close.current();
    };
    element?.addEventListener("keydown", onKeyDown);
    return () => {
      element?.removeEventListener("keydown", onKeyDown);
      // Who went on elsewhere meanwhile stays there.
      const at = document.activeElement;
      if (at === null || at === document.body || element?.contains(at) === true) opener?.focus();
    };
  }, []);
  return panel;
}
