/** Where the conversation was taken back, and the stretches of the history that this has undone. */
import { useContext } from "react";
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { stringField } from "../../protocol/fields";
import { useFold } from "../common/folds";
import { BackIcon } from "../common/icons";
import { GoingBackContext } from "../conversation/goingBack";
import type { UndoneStretch } from "../conversation/rows";
import { Step } from "./Step";

interface RewindLineProps {
  readonly action: ActionEvent;
  readonly observation: ObservationEvent | null;
  readonly place: string;
}

/** What became of the files, as the server says it; that all went well is said shortly. */
function filesText(action: ActionEvent, observation: ObservationEvent | null): string {
  const note = (observation === null ? "" : observation.content) || stringField(action.args, "note");
  if (note !== "") return note;
  return typeof observation?.extras.files_of === "number" ? "The files are as they were then." : "";
}

export function RewindLine({ action, observation, place }: RewindLineProps) {
  const forked = stringField(action.args, "forked_from") !== "";
  const whole = action.args.to === null;
  const where = whole ? "to the beginning" : place === "" ? "to an earlier point" : `to right after ${place}`;
  return (
    <Step icon={<BackIcon size={14} />} tone="warn" testId="rewind-line">
      <div className="line">
        {forked
          ? "This conversation branches off here: what stands above it has in common with another one."
          : `The conversation was taken back ${where}. ${filesText(action, observation)}`}
      </div>
    </Step>
  );
}

export function UndoneLine({ stretch }: { readonly stretch: UndoneStretch }) {
  const [open, setOpen] = useFold(stretch.key);
  const going = useContext(GoingBackContext);
  const steps = stretch.count === 1 ? "1 step" : `${stretch.count} steps`;
  return (
    <div className="undone-line" data-testid="undone-line">
      <button
        type="button"
        className="unfold"
        aria-expanded={open}
        onClick={() => {
          setOpen(!open);
        }}
      >
        {open ? `Hide ${steps} that were undone` : `${steps} undone`}
      </button>
      {going !== null && open && (
        <button
          type="button"
          className="unfold"
          data-testid="bring-back"
          onClick={() => {
            going.goBack(stretch.lastId);
          }}
        >
          Bring back
        </button>
      )}
    </div>
  );
}
