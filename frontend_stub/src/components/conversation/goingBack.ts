/** How cards let the user go back; null where the conversation cannot be changed. */
import { createContext } from "react";

export interface GoingBack {
  /** Goes on after this event (null: from the beginning), as if nothing had come after it. */
  readonly goBack: (eventId: number | null) => void;
  /** Makes a new conversation that begins like this one up to this event. */
  readonly fork: (eventId: number) => void;
}

export const GoingBackContext = createContext<GoingBack | null>(null);
