/** Finds conversations by their titles, repositories or ids, among all that the server has. */
import { useEffect, useState } from "react";
import { useServices } from "../../app/services";
import { SearchIcon } from "../common/icons";

/** How long after a key the server is asked: who types on is not asked for in between. */
const PAUSE_MILLISECONDS = 250;
const MAX_LENGTH = 200;

export function SearchField() {
  const { conversations } = useServices();
  const [text, setText] = useState("");
  const query = text.trim();
  useEffect(() => {
    const timer = window.setTimeout(() => void conversations.search(query), query === "" ? 0 : PAUSE_MILLISECONDS);
    return () => {
      window.clearTimeout(timer);
    };
  }, [conversations, query]);
  return (
    <label className="search-field">
      <SearchIcon size={15} />
      <input
        type="search"
        dir="auto"
        aria-label="Search conversations"
        placeholder="Search"
        autoComplete="off"
        spellCheck={false}
        maxLength={MAX_LENGTH}
        value={text}
        data-testid="search-field"
        onChange={(event) => {
          setText(event.target.value);
        }}
        onKeyDown={(event) => {
          if (event.key !== "Escape" || text === "") return;
          event.stopPropagation();
          setText("");
        }}
      />
    </label>
  );
}
