/** What the history shows, row by row: what was undone is folded into one row for each stretch of it. */
import type { Folds } from "../common/folds";
import type { TimelineItem } from "../../state/timeline";

/** A stretch of what was undone. */
export interface UndoneStretch {
  readonly key: string;
  readonly count: number;
  /** The newest event of it: going there brings all of it back. */
  readonly lastId: number;
  readonly open: boolean;
}

export type HistoryRow = TimelineItem | UndoneStretch;

export function isStretch(row: HistoryRow): row is UndoneStretch {
  return "count" in row;
}

function lastIdOf(item: TimelineItem): number {
  return Math.max(item.action?.id ?? -1, item.observation?.id ?? -1);
}

export function rowsOf(items: readonly TimelineItem[], folds: Pick<Folds, "isOpen">): readonly HistoryRow[] {
  const rows: HistoryRow[] = [];
  let stretch: TimelineItem[] = [];
  const fold = () => {
    const last = stretch.at(-1);
    if (last === undefined) return;
    // Named after its end, which stays when older history is put in front.
    const key = `undone:${last.key}`;
    const open = folds.isOpen(key, false);
    rows.push({ key, count: stretch.length, lastId: Math.max(...stretch.map(lastIdOf)), open }, ...(open ? stretch : []));
    stretch = [];
  };
  for (const item of items) {
    if (item.undone) {
      stretch.push(item);
    } else {
      fold();
      rows.push(item);
    }
  }
  fold();
  return rows;
}
