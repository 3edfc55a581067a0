/** The history as a scrolled list that draws only what is near the window, and stays at its end while it grows. */
import { useContext, useDeferredValue, useEffect, useSyncExternalStore } from "react";
import type { ReactNode } from "react";
import { Virtualizer } from "virtua";
import type { TimelineItem } from "../../state/timeline";
import { FoldsContext } from "../common/folds";
import { DownIcon } from "../common/icons";
import { UndoneLine } from "../items/RewindLine";
import { TimelineRow } from "../items/TimelineRow";
import { Spinner } from "../common/Spinner";
import { isStretch, rowsOf } from "./rows";
import { useStickToEnd } from "./useStickToEnd";

interface TimelineViewProps {
  readonly items: readonly TimelineItem[];
  /** How many of them are undone. */
  readonly undone: number;
  readonly output: ReadonlyMap<number, string>;
  readonly deadlines: ReadonlyMap<number, string>;
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
  const { items, undone, output, deadlines, awake, prepends, older, onLoadOlder, sent, children } = props;
  const { scroller, content, atEnd, toEnd } = useStickToEnd();
  const folds = useContext(FoldsContext);
  useSyncExternalStore(folds.subscribe, folds.changes);
  const rows = undone === 0 ? items : rowsOf(items, folds);
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
          <Virtualizer scrollRef={scroller} data={rows} shift={prepends !== settledPrepends} bufferSize={600}>
            {(row) =>
              isStretch(row) ? (
                <UndoneLine key={row.key} stretch={row} />
              ) : (
                <TimelineRow
                  key={row.key}
                  item={row}
                  awake={!row.undone && (awake || row.observation !== null)}
                  liveOutput={row.observation === null && row.action !== null ? (output.get(row.action.id) ?? "") : ""}
                  deadline={row.observation === null && row.action !== null ? (deadlines.get(row.action.id) ?? "") : ""}
                />
              )
            }
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
