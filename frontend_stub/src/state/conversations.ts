/** The list of conversations, or of those with a text: pages as far as they were asked for, and a first page kept fresh. */
import type { ConversationInfo, ConversationPage } from "../protocol/rest";

export interface ConversationList {
  /** What all of them have in their titles, repositories or ids; empty: these are simply all. */
  query: string;
  items: readonly ConversationInfo[];
  nextPageId: string | null;
  loading: boolean;
  /** True once the first page has arrived: an empty list then means that there is none. */
  loaded: boolean;
  error: string;
}

export type ListAction =
  | { readonly type: "loading" }
  | { readonly type: "first-page"; readonly page: ConversationPage; readonly query: string }
  | { readonly type: "next-page"; readonly page: ConversationPage }
  | { readonly type: "failed"; readonly error: string }
  | { readonly type: "rename"; readonly id: string; readonly title: string }
  | { readonly type: "remove"; readonly id: string };

export function createList(): ConversationList {
  return { query: "", items: [], nextPageId: null, loading: false, loaded: false, error: "" };
}

export function reduceList(list: ConversationList, action: ListAction): void {
  switch (action.type) {
    case "loading":
      list.loading = true;
      return;
    case "first-page":
      takeFirstPage(list, action.page, action.query);
      return;
    case "next-page":
      list.items = merge(list.items, action.page.results);
      list.nextPageId = action.page.next_page_id;
      list.loading = false;
      list.error = "";
      return;
    case "failed":
      list.loading = false;
      list.error = action.error;
      return;
    case "rename":
      list.items = list.items.map((item) =>
        item.conversation_id === action.id ? { ...item, title: action.title } : item,
      );
      return;
    case "remove":
      list.items = list.items.filter((item) => item.conversation_id !== action.id);
  }
}

/** A fresh first page replaces what it covers, so that conversations deleted elsewhere go; later pages of the same stay. */
function takeFirstPage(list: ConversationList, page: ConversationPage, query: string): void {
  const last = page.results.at(-1);
  const isWhole = page.next_page_id === null || last === undefined || query !== list.query;
  const later = isWhole ? [] : list.items.filter((item) => item.created_at < last.created_at);
  list.query = query;
  list.items = merge(later, page.results);
  if (!list.loaded || later.length === 0) list.nextPageId = page.next_page_id;
  list.loaded = true;
  list.loading = false;
  list.error = "";
}

function merge(
  known: readonly ConversationInfo[],
  fresh: readonly ConversationInfo[],
): readonly ConversationInfo[] {
  const byId = new Map(known.map((item) => [item.conversation_id, item]));
  for (const item of fresh) byId.set(item.conversation_id, item);
  return [...byId.values()].sort((first, second) => second.created_at.localeCompare(first.created_at));
}
