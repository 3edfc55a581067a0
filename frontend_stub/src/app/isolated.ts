/** Names within sentences that are plain text, where no element can keep their direction to themselves. */

const RIGHT_TO_LEFT = /[\u0590-\u08ff\ufb1d-\ufdff\ufe70-\ufeff\u200f\u202a-\u202e\u2066-\u2069\u{10800}-\u{10fff}\u{1e800}-\u{1efff}]/u;
const OVERRIDES = /[\u202a-\u202e\u2066-\u2069]/g;

/** The name as a unit with a direction of its own: what stands around it keeps its order. */
export function isolated(name: string): string {
  return RIGHT_TO_LEFT.test(name) ? `\u2068${name.replace(OVERRIDES, "")}\u2069` : name;
}
