/** What people hear who do not see the page: how things stand, and each message of the agent's when it is whole. */
import { useState } from "react";
import { stringField } from "../../protocol/fields";
import type { ConversationModel } from "../../state/model";
import type { Phase } from "../../state/phase";

const SPOKEN: Partial<Readonly<Record<Phase, string>>> = {
  working: "The agent is working",
  ready: "The agent waits for you",
  finished: "The agent has finished",
  paused: "The agent is paused",
  stopped: "The agent is stopped",
  confirming: "The agent asks for your approval",
  error: "The agent stopped with an error",
};

/** The history itself would be too much to read aloud. */
export function Announcer({ phase, model }: { readonly phase: Phase; readonly model: ConversationModel }) {
  const text = model.connection === "reconnecting" ? "The connection is lost" : (SPOKEN[phase] ?? "");
  return (
    <>
      <div className="visually-hidden" role="status" aria-live="polite">
        {text}
      </div>
      <div className="visually-hidden" role="status" aria-live="polite" data-testid="spoken-message">
        {useSpokenMessage(model)}
      </div>
    </>
  );
}

/** More of a message is read in the history. */
const SPOKEN_CHARACTERS = 400;

/** What the agent has said since the page was opened, newest only; whole messages, not the words as they come. */
function useSpokenMessage({ timeline, older }: ConversationModel): string {
  const newest = timeline.items.findLast((item) => item.kind === "agent" || item.kind === "finish");
  const [first, setFirst] = useState<string | null>(null);
  // What is there when the history is loaded was said before.
  if (first === null && older !== "unknown") setFirst(newest?.key ?? "");
  if (first === null || newest?.action === undefined || newest.action === null || newest.key === first) return "";
  const text = stringField(newest.action.args, "final_thought") || newest.action.message || stringField(newest.action.args, "content");
  return `The agent said: ${text.slice(0, SPOKEN_CHARACTERS)}`;
}
