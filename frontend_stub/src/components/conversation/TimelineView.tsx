/** The history as a scrolled list that draws only what is near the window, and stays at its end while it grows. */
import { useDeferredValue, useEffect } from "react";
import type { ReactNode } from "react";
import { Virtualizer } from "virtua";
import type { TimelineItem } from "../../state/timeline";
import { DownIcon } from "../common/icons";
import { TimelineRow } from "../items/TimelineRow";
import { Spinner } from "../common/Spinner";
import { useStickToEnd } from "./useStickToEnd";

interface TimelineViewProps {
  readonly items: readonly TimelineItem[];
  readonly output: ReadonlyMap<number, string>;
  readonly awake: boolean;
  /** How often older history was put in front: the view then stays where it is. */
  readonly prepends: number;
  readonly older: "unknown" | "more" | "loading" | "none";
  readonly onLoadOlder: () => void;
  /** Changes when the user sends something: the view then goes to the end. */
  readonly sent: number;
  /** What follows the history: streamed text, progress, messages on their way. */
  readonly children: ReactNode;
}

/** Distance from the top at which older history is asked for. */
const OLDER_MARGIN = 800;

export function TimelineView(props: TimelineViewProps) {
  const { items, output, awake, prepends, older, onLoadOlder, sent, children } = props;
  const { scroller, content, atEnd, toEnd } = useStickToEnd();
  // Lags one rendering behind, so `shift` is true exactly for the rendering in which items came in front.
  const settledPrepends = useDeferredValue(prepends);

  useEffect(() => {
    if (sent > 0) toEnd();
  }, [sent, toEnd]);

  const askForOlder = () => {
    if (older === "more" && scroller.current !== null && scroller.current.scrollTop < OLDER_MARGIN) onLoadOlder();
  };

  // A first page that does not fill the window would never be scrolled.
  useEffect(askForOlder);

  return (
    <div className="timeline-frame">
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus */}
      <div ref={scroller} className="timeline" role="log" aria-label="Conversation" aria-live="off" tabIndex={0} data-testid="timeline" onScroll={askForOlder}>
        <div ref={content} className="timeline-content">
          <Virtualizer scrollRef={scroller} data={items} shift={prepends !== settledPrepends} bufferSize={600}>
            {(item) => (
              <TimelineRow
                key={item.key}
                item={item}
                awake={awake || item.observation !== null}
                liveOutput={item.observation === null && item.action !== null ? (output.get(item.action.id) ?? "") : ""}
              />
            )}
          </Virtualizer>
          {children}
        </div>
      </div>
      {older === "loading" && (
        <div className="older" role="status">
          <Spinner /> Loading older history
        </div>
      )}
      {!atEnd && (
        <button type="button" className="to-end" data-testid="jump-to-latest" onClick={toEnd}>
          <DownIcon size={15} /> Jump to latest
        </button>
      )}
    </div>
  );
}
