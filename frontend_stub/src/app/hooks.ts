/** Small hooks that several components share. */
import { useEffect, useSyncExternalStore } from "react";
import { isolated } from "./isolated";

/** The time, told again every `interval` milliseconds while `active`. */
export function useNow(interval: number, active = true): number {
  return useSyncExternalStore(
    (listener) => {
      if (!active) return () => undefined;
      const timer = window.setInterval(listener, interval);
      return () => {
        window.clearInterval(timer);
      };
    },
    // Rounded, so that the value is the same however often it is read within one step.
    () => Math.floor(Date.now() / interval) * interval,
  );
}

export function useMediaQuery(query: string): boolean {
  return useSyncExternalStore(
    (listener) => {
      const media = window.matchMedia(query);
      media.addEventListener("change", listener);
      return () => {
        media.removeEventListener("change", listener);
      };
    },
    () => window.matchMedia(query).matches,
  );
}

/** True where a keyboard is likely: focusing a field there opens no on-screen keyboard. */
export function hasFinePointer(): boolean {
  return window.matchMedia("(pointer: fine)").matches;
}

export function useDocumentTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "Drydock" : `${isolated(title)} · Drydock`;
  }, [title]);
}
