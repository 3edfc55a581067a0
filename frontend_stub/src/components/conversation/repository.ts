/** What a conversation may begin with from version control. */

import type { StartingPoint } from "../../protocol/rest";

const NAME = /^[\w.~-]+(\/[\w.~-]+)+$/;
const ADDRESS = /^https?:\/\/[^/@\s]+\/(.*)$/;

/** Whether the server would know what is meant: words with slashes between them, or such an address. */
export function isRepository(text: string): boolean {
  const wanted = text.trim();
  const path = (ADDRESS.exec(wanted)?.[1] ?? wanted).replace(/\/$/, "");
  return (NAME.test(path) || (path !== wanted && /^[\w.~-]+$/.test(path))) && !path.includes("..");
}

/** The choice as it is sent; null where nothing is chosen. */
export function chosen(value: StartingPoint | null): StartingPoint | null {
  if (value === null || value.repository.trim() === "") return null;
  return { repository: value.repository.trim().replace(/\/$/, ""), branch: value.branch.trim() };
}
