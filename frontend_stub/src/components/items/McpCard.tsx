/** A call of a tool that the protocol has no type of its own for: its arguments, and what came of it. */
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { objectField, stringField } from "../../protocol/fields";
import { parseTimestamp } from "../../state/time";
import { Data, dataIn } from "../common/Data";
import { PlugIcon } from "../common/icons";
import { Picture } from "../common/Picture";
import { Visible } from "../common/Visible";
import { Fold, Step } from "./Step";
import { Underway, underwayTone } from "./Underway";

interface McpCardProps {
  readonly foldKey: string;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  readonly awake: boolean;
  /** Until when a client has time to answer; empty where none carries it out. */
  readonly deadline: string;
}

interface McpResult {
  readonly text: string;
  /** Addresses of images, each with its data in it. */
  readonly images: readonly string[];
  readonly bad: boolean;
}

interface Block {
  readonly type?: unknown;
  readonly text?: unknown;
  readonly data?: unknown;
  readonly mimeType?: unknown;
}

function imageOf({ type, data, mimeType }: Block): string | null {
  if (type !== "image" || typeof data !== "string" || typeof mimeType !== "string" || !mimeType.startsWith("image/")) return null;
  return `data:${mimeType};base64,${data}`;
}

/** The result of a server's tool is JSON with a list of blocks; anything else is shown as it is. */
export function mcpResult(observation: ObservationEvent): McpResult {
  const raw = observation.content || observation.message;
  const failed = observation.observation === "error";
  try {
    const result = JSON.parse(raw) as { readonly content?: unknown; readonly isError?: unknown } | null;
    if (result === null || typeof result !== "object" || !Array.isArray(result.content)) return { text: raw, images: [], bad: failed };
    const blocks = result.content.filter((block): block is Block => typeof block === "object" && block !== null);
    const texts = blocks.map((block) => block.text).filter((text) => typeof text === "string");
    const images = blocks.map(imageOf).filter((image) => image !== null);
    return { text: texts.join("\n"), images, bad: failed || result.isError === true };
  } catch {
    return { text: raw, images: [], bad: failed };
  }
}

/** A short result is seen at once. */
const SHORT_LINES = 8;
const SHORT_CHARACTERS = 600;

function isShort({ text, images }: McpResult): boolean {
  return images.length > 0 || (text !== "" && text.length <= SHORT_CHARACTERS && text.split("\n").length <= SHORT_LINES);
}

function ResultText({ text }: { readonly text: string }) {
  const data = dataIn(text);
  if (data !== undefined) return <Data value={data} />;
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
    <pre className="file-text wrap" tabIndex={0} aria-label="Result">
      {text}
    </pre>
  );
}

function Waiting({ action, deadline }: { readonly action: ActionEvent | null; readonly deadline: string }) {
  const until = parseTimestamp(deadline);
  return (
    <>
      {until !== null && <span className="waits">a client answers, until {new Date(until).toLocaleTimeString()}</span>}
      <Underway action={action} />
    </>
  );
}

export function McpCard({ foldKey, action, observation, awake, deadline }: McpCardProps) {
  const busy = observation === null && awake;
  const name =
    (action === null ? "" : stringField(action.args, "name")) ||
    (observation === null ? "" : stringField(observation.extras, "name"));
  const result = observation === null ? null : mcpResult(observation);
  const asked = action === null ? {} : (objectField(action.args, "arguments") ?? {});
  return (
    <Step
      icon={<PlugIcon size={14} />}
      tone={result?.bad === true ? "bad" : busy ? underwayTone(action) : "plain"}
      testId="mcp-card"
      action={action}
    >
      <Fold
        foldKey={foldKey}
        initiallyOpen={result !== null && (result.bad || isShort(result))}
        title={
          <>
            {busy ? "Using" : "Used"} the tool <code className="path"><Visible text={name} /></code>
          </>
        }
        {...(busy ? { aside: <Waiting action={action} deadline={deadline} /> } : {})}
      >
        {Object.keys(asked).length > 0 && <Data value={asked} />}
        {result !== null && result.text !== "" && <ResultText text={result.text} />}
        {result !== null && result.images.length > 0 && (
          <div className="prose">
            {result.images.map((image, index) => (
              <Picture key={index} place={String(index)} src={image} alt={`Result ${index + 1}`} />
            ))}
          </div>
        )}
      </Fold>
    </Step>
  );
}
