/** Draws parts of the page as a conversation would. */
import { render } from "@testing-library/react";
import type { ReactElement } from "react";
import { Folds, FoldsContext } from "../src/components/common/folds";
import { TimelineRow } from "../src/components/items/TimelineRow";
import { liveModel } from "./builders";

export function show(element: ReactElement) {
  return render(<FoldsContext.Provider value={new Folds()}>{element}</FoldsContext.Provider>);
}

/** Draws the items that these events make. */
export function showItems(...payloads: readonly unknown[]) {
  return showItemsOf(true, payloads);
}

export function showItemsOf(awake: boolean, payloads: readonly unknown[]) {
  const { items } = liveModel(...payloads).timeline;
  return show(
    <>
      {items.map((item) => (
        <TimelineRow key={item.key} item={item} liveOutput="" deadline="" awake={awake} />
      ))}
    </>,
  );
}
