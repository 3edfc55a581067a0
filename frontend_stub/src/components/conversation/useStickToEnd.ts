/** Keeps a scrolled box at its end while its content grows, until the user scrolls away. */
import { useCallback, useEffect, useRef, useState } from "react";

/** Nearer to the end than this counts as being there. */
const NEAR = 60;
/** A scroll this soon after a wheel, touch, key or press is the user's. */
const INTENT_MILLISECONDS = 1_200;
/** A move up without any sign of the user for this long, while the content changes its height, is the browser's. */
const PUSH_MILLISECONDS = 200;

export function useStickToEnd() {
  const scroller = useRef<HTMLDivElement>(null);
  const content = useRef<HTMLDivElement>(null);
  const sticking = useRef(true);
  const [atEnd, setAtEnd] = useState(true);

  const toEnd = useCallback(() => {
    sticking.current = true;
    setAtEnd(true);
    if (scroller.current !== null) scroller.current.scrollTop = scroller.current.scrollHeight;
  }, []);

  useEffect(() => {
    const box = scroller.current;
    const inner = content.current;
    if (box === null || inner === null) return;
    let lastTop = box.scrollTop;
    let lastHeight = box.scrollHeight;
    /** Where the reader was when the browser pushed the window up; null when it did not. */
    let place: number | null = null;
    let intent = 0;

    const noteIntent = () => {
      intent = performance.now();
    };
    const backToPlace = () => {
      if (place === null || box.scrollHeight - box.clientHeight < place) return;
      box.scrollTop = lastTop = place;
      place = null;
    };
    const onScroll = () => {
      const distance = box.scrollHeight - box.clientHeight - box.scrollTop;
      const movedUp = box.scrollTop < lastTop - 1;
      const pushed = movedUp && box.scrollHeight !== lastHeight && performance.now() - intent > PUSH_MILLISECONDS;
      lastHeight = box.scrollHeight;
      if (pushed && !sticking.current) {
        // Streamed text goes a moment before the finished message has its height.
        place ??= lastTop;
        lastTop = box.scrollTop;
        backToPlace();
        return;
      }
      lastTop = box.scrollTop;
      if (performance.now() - intent < PUSH_MILLISECONDS) place = null;
      const byUser = performance.now() - intent < INTENT_MILLISECONDS;
      // The list corrects its own position while rows are measured; only a move of the user's lets go. A far
      // jump is always one: it comes from a search, a link or an assistive tool.
      if (distance <= NEAR && place === null) sticking.current = true;
      else if (movedUp && (byUser || distance > 2 * box.clientHeight)) sticking.current = false;
      setAtEnd(sticking.current);
    };
    const follow = () => {
      lastHeight = Math.max(lastHeight, box.scrollHeight);
      // What is folded may leave nothing to scroll, and so nothing that tells of it.
      setAtEnd(sticking.current || box.scrollHeight <= box.clientHeight);
      if (sticking.current) box.scrollTop = box.scrollHeight;
      else backToPlace();
    };

    const observer = new ResizeObserver(follow);
    observer.observe(inner);
    observer.observe(box);
    box.addEventListener("scroll", onScroll, { passive: true });
    const signs = ["wheel", "touchmove", "keydown", "pointerdown"] as const;
    for (const sign of signs) box.addEventListener(sign, noteIntent, { passive: true });
    return () => {
      observer.disconnect();
      box.removeEventListener("scroll", onScroll);
      for (const sign of signs) box.removeEventListener(sign, noteIntent);
    };
  }, []);

  return { scroller, content, atEnd, toEnd };
}
