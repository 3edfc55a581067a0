/** What the agent did in its browser: where it went or what it used, how the window looked, and on request what it read. */
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { booleanField, stringField } from "../../protocol/fields";
import { CompassIcon } from "../common/icons";
import { Picture } from "../common/Picture";
import { Visible } from "../common/Visible";
import { Fold, Step } from "./Step";
import { Underway, underwayTone } from "./Underway";

interface BrowserCardProps {
  readonly foldKey: string;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  readonly awake: boolean;
}

const PICTURE = /^data:image\/(jpeg|png|webp);base64,/;

/** A picture is shown only when its data is in the event: nothing is fetched from elsewhere. */
function pictureOf(observation: ObservationEvent | null): string {
  const data = observation === null ? "" : stringField(observation.extras, "screenshot");
  return PICTURE.test(data) ? data : "";
}

function asked(action: ActionEvent | null, observation: ObservationEvent | null): string {
  if (action === null) return observation === null ? "" : stringField(observation.extras, "last_browser_action");
  return stringField(action.args, "browser_actions");
}

const OPENS = /^goto\((['"])(.*)\1\)$/;

export function BrowserCard({ foldKey, action, observation, awake }: BrowserCardProps) {
  const busy = observation === null && awake;
  const url = (action === null ? "" : stringField(action.args, "url")) || (observation === null ? "" : stringField(observation.extras, "url"));
  const written = asked(action, observation).trim();
  // To open a page is what it does most: that needs no code to be told.
  const opened = OPENS.exec(written)?.[2] ?? "";
  const code = opened === "" ? written : "";
  const bad = observation !== null && (booleanField(observation.extras, "error") || observation.observation === "error");
  const picture = pictureOf(observation);
  const text = observation === null ? "" : observation.content || observation.message;
  const lines = code.split("\n");
  return (
    <Step icon={<CompassIcon size={14} />} tone={bad ? "bad" : busy ? underwayTone(action) : "plain"} testId="browser-card" action={action}>
      <Fold
        foldKey={foldKey}
        initiallyOpen={bad}
        title={
          code === "" ? (
            <>
              {bad ? "Could not open" : busy ? "Opening" : "Opened"} <code className="path"><Visible text={opened || url} /></code>
            </>
          ) : (
            <>
              Used the browser <code className="path"><Visible text={lines[0] ?? ""} /></code>
              {lines.length > 1 && <span className="dim"> and {lines.length - 1} more</span>}
              {url !== "" && <span className="dim"> · <bdi>{url}</bdi></span>}
            </>
          )
        }
        {...(busy ? { aside: <Underway action={action} /> } : {})}
      >
        {lines.length > 1 && <pre className="file-text"><Visible text={code} /></pre>}
        {text !== "" && (
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
          <pre className="file-text" tabIndex={0} aria-label="What the browser told">
            {text}
          </pre>
        )}
      </Fold>
      {picture !== "" && (
        <Picture className="browser-window" place="window" src={picture} alt={`The browser's window${url === "" ? "" : ` at ${url}`}`} />
      )}
    </Step>
  );
}
