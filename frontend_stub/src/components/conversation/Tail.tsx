/** What stands below the history: text being written, the start of the sandbox, messages on their way. */
import { memo, useDeferredValue } from "react";
import { useNow } from "../../app/hooks";
import type { PendingMessage, ProgressStep } from "../../state/model";
import type { ResponseStream } from "../../state/streams";
import { formatElapsed } from "../../state/time";
import { AlertIcon, CheckIcon } from "../common/icons";
import { Markdown } from "../common/Markdown";
import { Spinner } from "../common/Spinner";
import { UserBubble } from "../items/messages";

/** Only the end of a long train of thought is of interest while it runs. */
const REASONING_CHARACTERS = 600;

const Writing = memo(function Writing({ stream }: { readonly stream: ResponseStream }) {
  // Drawing markdown is slow for long text; the deferred value lets typing and scrolling go first.
  const text = useDeferredValue(stream.text);
  return (
    <div className="step speech" data-testid="streaming-message">
      <div className="step-rail">
        <span className="step-mark busy">
          <Spinner />
        </span>
      </div>
      <div className="step-content">
        {text === "" && stream.reasoning !== "" && (
          <div className="reasoning" dir="auto" data-testid="streaming-reasoning">
            {stream.reasoning.slice(-REASONING_CHARACTERS)}
          </div>
        )}
        {text !== "" && (
          <div className="writing">
            <Markdown text={text} />
          </div>
        )}
      </div>
    </div>
  );
});

export function Streaming({ streams }: { readonly streams: readonly ResponseStream[] }) {
  return streams.map((stream) => (
    <div className="row" key={stream.responseId}>
      <Writing stream={stream} />
    </div>
  ));
}

export function StartProgress({ steps, since }: { readonly steps: readonly ProgressStep[]; readonly since: number }) {
  const now = useNow(1_000);
  const start = steps[0]?.at ?? since;
  const shown = steps.length === 0 ? [{ label: "Making the sandbox ready", at: start }] : steps;
  return (
    <div className="row">
      <div className="launch" data-testid="start-progress">
        <div className="launch-head">
          <span>Launching</span>
          {start > 0 && <span className="launch-time">{formatElapsed(now - start)}</span>}
        </div>
        <ol className="launch-steps">
          {shown.map((step, index) => {
            const current = index === shown.length - 1;
            return (
              <li key={`${step.at}-${index}`} className={current ? "launch-step current" : "launch-step"}>
                <span className="launch-mark">{current ? <Spinner /> : <CheckIcon size={13} />}</span>
                {step.label}
              </li>
            );
          })}
        </ol>
      </div>
    </div>
  );
}

/** Why the model is asked again. It goes as soon as the model answers. */
export function Retry({ message }: { readonly message: string }) {
  return (
    <div className="row">
      <div className="step" data-testid="retry-notice">
        <div className="step-rail">
          <span className="step-mark warn">
            <AlertIcon size={14} />
          </span>
        </div>
        <div className="step-content">
          <div className="line">{message}</div>
        </div>
      </div>
    </div>
  );
}

const WAITING: Readonly<Record<PendingMessage["state"], string>> = {
  held: "Waiting to be sent",
  sent: "Sending",
  created: "Sending",
  refused: "Not sent",
};

interface PendingProps {
  readonly messages: readonly PendingMessage[];
  readonly onTakeBack: (key: string) => void;
}

export function Pending({ messages, onTakeBack }: PendingProps) {
  return messages.map(({ key, text, state, refusal = "" }) => (
    <div className="row" key={key}>
      <UserBubble
        text={text}
        waiting={refusal === "" ? WAITING[state] : `${WAITING[state]}: ${refusal}`}
        tools={
          (state === "held" || state === "refused") && (
            <button type="button" className="chip take-back" data-testid="take-back" onClick={() => { onTakeBack(key); }}>
              Take back
            </button>
          )
        }
      />
    </div>
  ));
}
