/**
 * Which events of a log count: behind a rewind the history goes on after an earlier event, and what came between them
 * counts no more. Any event may be named, so what was undone can come back.
 */
export class Branches {
  readonly #starts = [0];
  readonly #parents = [-1];

  /** Takes note of the rewind `id`, behind which the history goes on after event `to` (-1: before the first one). */
  rewind(id: number, to: number): void {
    this.#starts.push(id);
    this.#parents.push(to);
  }

  /** Tells of an id whether its event counts, as of now. */
  counting(): (id: number) => boolean {
    const stretches: (readonly [number, number])[] = [];
    let end = Infinity;
    while (end >= 0) {
      const index = this.#starts.findLastIndex((start) => start <= end);
      stretches.push([this.#starts[index] ?? 0, end]);
      end = this.#parents[index] ?? -1;
    }
    return (id) => id < 0 || stretches.some(([first, last]) => first <= id && id <= last);
  }
}
