/** Small hooks that several components share. */
import { useEffect, useState, useSyncExternalStore } from "react";
import { errorText, passes } from "../net/http";
import { isolated } from "./isolated";

const LOAD_AGAIN_MILLISECONDS = 3_000;

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

/** Loads, again as long as what is in the way may pass; gives the sentence of what it is, empty once it has loaded. */
export function useLoading(load: () => Promise<void>): string {
  const [problem, setProblem] = useState("");
  useEffect(() => {
    let timer: number | undefined;
    let current = true;
    const attempt = async (): Promise<void> => {
      try {
        await load();
        if (current) setProblem("");
      } catch (error) {
        if (!current) return;
        setProblem(errorText(error));
        if (passes(error)) timer = window.setTimeout(() => void attempt(), LOAD_AGAIN_MILLISECONDS);
      }
    };
    void attempt();
    return () => {
      current = false;
      window.clearTimeout(timer);
    };
  }, [load]);
  return problem;
}

export function useDocumentTitle(title: string): void {
  useEffect(() => {
    document.title = title === "" ? "Drydock" : `${isolated(title)} · Drydock`;
  }, [title]);
}
