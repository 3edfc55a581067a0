/** What jsdom lacks of a browser, as little as the components need. */
import { cleanup, configure } from "@testing-library/react";
import { afterEach } from "vitest";

// A busy machine is late; what is there is found at once.
configure({ asyncUtilTimeout: 10_000 });

class NoObserver {
  observe(): void {
    // Nothing has a size in jsdom, so nothing changes.
  }
  unobserve(): void {
    // See above.
  }
  disconnect(): void {
    // See above.
  }
}

Object.assign(window, { ResizeObserver: NoObserver, IntersectionObserver: NoObserver });
window.matchMedia = (media: string) =>
  Object.assign(new EventTarget(), {
    media,
    matches: false,
    onchange: null,
    addListener: () => undefined,
    removeListener: () => undefined,
  });
Object.assign(HTMLDialogElement.prototype, {
  showModal(this: HTMLDialogElement) {
    this.setAttribute("open", "");
  },
  close(this: HTMLDialogElement) {
    this.removeAttribute("open");
  },
});
Object.assign(HTMLElement.prototype, { showPopover: () => undefined, hidePopover: () => undefined });
const matches = Object.getOwnPropertyDescriptor(Element.prototype, "matches")?.value as (selector: string) => boolean;
Object.assign(Element.prototype, {
  matches(this: Element, selector: string) {
    return selector === ":popover-open" ? false : matches.call(this, selector);
  },
});

afterEach(() => {
  cleanup();
  window.localStorage.clear();
  window.sessionStorage.clear();
});
