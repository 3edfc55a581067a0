/**
 * The path below which the browser finds the server, without a slash at its end; empty where it stands by itself. The
 * server writes it into the page; as it was built, the page says `./`.
 */
export const BASE_PATH = basePathIn(document);

export function basePathIn(page: Document): string {
  const written = page.querySelector<HTMLMetaElement>('meta[name="base-path"]')?.content ?? "";
  return written.startsWith("/") ? written.replace(/\/+$/, "") : "";
}
