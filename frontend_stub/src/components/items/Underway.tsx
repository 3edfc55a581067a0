/** What stands in the card of an action that has no answer yet: it waits for the user's word, or it is being done. */
import type { ActionEvent } from "../../protocol/events";
import { stringField } from "../../protocol/fields";
import { Spinner } from "../common/Spinner";
import type { Tone } from "./Step";

function waits(action: ActionEvent | null): boolean {
  return action !== null && stringField(action.args, "confirmation_state") === "awaiting_confirmation";
}

export function underwayTone(action: ActionEvent | null): Tone {
  return waits(action) ? "warn" : "busy";
}

export function Underway({ action }: { readonly action: ActionEvent | null }) {
  return waits(action) ? <span className="waits">waits for you</span> : <Spinner />;
}
