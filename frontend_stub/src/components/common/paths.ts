const WORKSPACE = "/workspace/";

/** A path as people speak of it: below the workspace without the workspace's own. */
export function shortPath(path: string): string {
  return path.startsWith(WORKSPACE) ? path.slice(WORKSPACE.length) : path;
}
