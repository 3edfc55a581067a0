import { describe, expect, it } from "vitest";
import { createList, reduceList } from "../src/state/conversations";
import type { ListAction } from "../src/state/conversations";
import { info } from "./builders";

const conversation = (id: string, day: number, title = id) =>
  info({ conversation_id: id, title, created_at: `2026-01-${String(day).padStart(2, "0")}T00:00:00Z` });

function after(...actions: readonly ListAction[]) {
  const list = createList();
  for (const action of actions) reduceList(list, action);
  return list;
}

const first: ListAction = {
  type: "first-page",
  page: { results: [conversation("d", 9), conversation("c", 8)], next_page_id: "p2" },
  query: "",
};
const second: ListAction = {
  type: "next-page",
  page: { results: [conversation("b", 7), conversation("a", 6)], next_page_id: null },
};
const ids = (list: ReturnType<typeof createList>) => list.items.map((item) => item.conversation_id);

describe("the list of conversations", () => {
  it("grows by pages, newest first", () => {
    const list = after(first, second);
    expect(ids(list)).toEqual(["d", "c", "b", "a"]);
    expect(list.nextPageId).toBeNull();
  });

  it("takes in a fresh first page: what is new, what has changed, what is gone", () => {
    const fresh: ListAction = {
      type: "first-page",
      page: { results: [conversation("e", 10), conversation("c", 8, "renamed")], next_page_id: "p2" },
      query: "",
    };
    const list = after(first, second, fresh);
    expect(ids(list)).toEqual(["e", "c", "b", "a"]);
    expect(list.items[1]?.title).toBe("renamed");
    expect(list.nextPageId).toBeNull();
  });

  it("holds nothing but the first page when that is all there is", () => {
    const all: ListAction = { type: "first-page", page: { results: [conversation("c", 8)], next_page_id: null }, query: "" };
    expect(ids(after(first, second, all))).toEqual(["c"]);
  });

  it("holds nothing of before when something else is looked for", () => {
    const found: ListAction = {
      type: "first-page",
      page: { results: [conversation("d", 9)], next_page_id: "p9" },
      query: "boat",
    };
    const list = after(first, second, found);
    expect([ids(list), list.query, list.nextPageId]).toEqual([["d"], "boat", "p9"]);
  });

  it("keeps what it has when a refresh fails", () => {
    const list = after(first, { type: "failed", error: "away" });
    expect(ids(list)).toEqual(["d", "c"]);
    expect(list.error).toBe("away");
  });

  it("renames and removes at once", () => {
    const list = after(first, { type: "rename", id: "c", title: "new" }, { type: "remove", id: "d" });
    expect(list.items.map((item) => item.title)).toEqual(["new"]);
  });
});
