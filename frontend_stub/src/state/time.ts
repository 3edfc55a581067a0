/** Times of the protocol and their wording. */

const HAS_ZONE = /(?:Z|[+-]\d{2}:?\d{2})$/;

/** Milliseconds of an ISO time; one without a zone is UTC. Null when it is not a time. */
export function parseTimestamp(text: string): number | null {
  if (text === "") return null;
  const value = Date.parse(HAS_ZONE.test(text) ? text : `${text}Z`);
  return Number.isNaN(value) ? null : value;
}

/** A stretch of time, as short as it stays clear: `0.3 s`, `12 s`, `2:05`, `1:02:03`. */
export function formatDuration(milliseconds: number): string {
  const seconds = Math.max(0, milliseconds) / 1000;
  if (seconds < 9.95) return `${seconds.toFixed(1)} s`;
  const whole = Math.floor(seconds);
  if (whole < 60) return `${whole} s`;
  const pad = (part: number) => String(part).padStart(2, "0");
  const minutes = Math.floor(whole / 60);
  if (minutes < 60) return `${minutes}:${pad(whole % 60)}`;
  return `${Math.floor(minutes / 60)}:${pad(minutes % 60)}:${pad(whole % 60)}`;
}

/** A running clock without tenths, so that it does not flicker: `0:07`. */
export function formatElapsed(milliseconds: number): string {
  const whole = Math.max(0, Math.floor(milliseconds / 1000));
  const pad = (part: number) => String(part).padStart(2, "0");
  const hours = Math.floor(whole / 3600);
  const minutes = Math.floor((whole % 3600) / 60);
  return hours > 0 ? `${hours}:${pad(minutes)}:${pad(whole % 60)}` : `${minutes}:${pad(whole % 60)}`;
}

const STEPS: readonly (readonly [number, string])[] = [
  [60, "min"],
  [24, "h"],
  [7, "d"],
];

/** How long ago, roughly: `now`, `5 min`, `3 h`, `2 d`, else the date. */
export function formatAgo(then: number, now: number): string {
  let value = Math.floor((now - then) / 60_000);
  if (value < 1) return "now";
  for (const [size, unit] of STEPS) {
    if (value < size) return `${value} ${unit}`;
    value = Math.floor(value / size);
  }
  return new Date(then).toLocaleDateString(undefined, { day: "numeric", month: "short" });
}
