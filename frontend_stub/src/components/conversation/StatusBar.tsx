/** One line above the writing box: what is going on, for how long, and how to change it. Always there, so nothing jumps. */
import { useNow } from "../../app/hooks";
import type { RequestedState } from "../../protocol/client-actions";
import { explainReason, isErrorStatus, isHeldBack, isLimit, progressLabel, waitingParts } from "../../protocol/status";
import type { ConversationModel } from "../../state/model";
import type { Phase } from "../../state/phase";
import { formatElapsed } from "../../state/time";
import { PauseIcon, PlayIcon, StopIcon } from "../common/icons";
import { Spinner } from "../common/Spinner";

const WORDS: Readonly<Record<Phase, string>> = {
  opening: "Opening",
  missing: "Not found",
  starting: "Starting",
  waiting: "Waiting for its turn",
  working: "Working",
  ready: "Waiting for you",
  finished: "Finished. Send a message to go on",
  paused: "Paused. Resume or send a message to go on",
  stopped: "Stopped. Resume or send a message to go on",
  asleep: "Asleep. Sending a message wakes it",
  confirming: "Waiting for your approval",
  throttled: "The model asks to slow down; trying again",
  error: "Stopped by an error",
  failed: "The sandbox failed",
  archived: "Archived: can be read, not continued",
};

const BUSY: ReadonlySet<Phase> = new Set(["opening", "starting", "waiting", "working", "throttled"]);

function statusText(model: ConversationModel, phase: Phase): string {
  if (model.infoState === "failed" && phase === "opening") return "The server cannot be reached; trying again";
  if (model.connection === "reconnecting" && phase !== "asleep") return "Connection lost; reconnecting";
  if (model.connection === "refused" && phase !== "asleep") return "Connection refused; trying again";
  const runtime = model.info?.runtime_status ?? null;
  if (phase === "failed") return runtime === null ? WORDS.failed : progressLabel(runtime);
  if (model.retry !== "" && (phase === "working" || phase === "throttled")) return retryHeadline(model.retry);
  if (phase === "starting") return model.progress.at(-1)?.label ?? (runtime === null ? WORDS.starting : startLabel(runtime));
  if (phase === "working" && model.frozen !== "") return "Frozen until there is room on the server's disk";
  if (phase === "waiting") return waitingParts(model.waiting)[0];
  if (phase === "error" && model.agentReason !== "") return explainReason(model.agentReason).title;
  return WORDS[phase];
}

/** The first part of a retry's message; all of it stands below the history. */
function retryHeadline(message: string): string {
  return message.split(": ", 1)[0] ?? message;
}

function startLabel(runtime: string): string {
  // A conversation that is ready but whose agent is not says so in other words.
  return runtime === "STATUS$READY" || runtime === "STATUS$STOPPED" || isErrorStatus(runtime)
    ? WORDS.starting
    : progressLabel(runtime);
}

function Clock({ since }: { readonly since: number }) {
  const now = useNow(1_000);
  return <span className="status-time">{formatElapsed(now - since)}</span>;
}

interface StatusBarProps {
  readonly model: ConversationModel;
  readonly phase: Phase;
  readonly onRequest: (state: RequestedState) => void;
  readonly onRetry: () => void;
}

export function StatusBar({ model, phase, onRequest, onRetry }: StatusBarProps) {
  const away = model.connection === "reconnecting" || model.connection === "refused";
  const busy = BUSY.has(phase) && !away;
  const active = phase === "working" || phase === "waiting" || phase === "throttled";
  const resumable = phase === "paused" || phase === "stopped" || phase === "error";
  const text = statusText(model, phase);
  const wakeable = phase === "asleep" || phase === "failed";
  return (
    <div className={`status ${phase}${away ? " away" : ""}`} data-testid="agent-status" data-phase={phase} data-connection={model.connection}>
      <span className="status-mark">{busy || away ? <Spinner /> : <span className="status-dot" />}</span>
      <span className="status-text" data-testid="status-text" title={text}>
        {text}
      </span>
      {active && !away && model.retry === "" && model.agentStateSince > 0 && <Clock since={model.agentStateSince} />}
      <span className="status-actions">
        {phase === "waiting" && !away && isHeldBack(model.waiting) && (
          <button type="button" className="chip" data-testid="go-on-button" onClick={() => { onRequest("running"); }}>
            <PlayIcon size={13} /> Go on now
          </button>
        )}
        {active && !away && (
          <>
            <button type="button" className="chip" data-testid="pause-button" onClick={() => { onRequest("paused"); }}>
              <PauseIcon size={14} /> Pause
            </button>
            <button type="button" className="chip" data-testid="stop-button" onClick={() => { onRequest("stopped"); }}>
              <StopIcon size={14} /> Stop
            </button>
          </>
        )}
        {(model.connection === "refused" || model.infoState === "failed") && (
          <button type="button" className="chip" data-testid="retry-button" onClick={onRetry}>
            Try now
          </button>
        )}
        {(wakeable || (resumable && !away)) && (
          <button type="button" className="chip" data-testid="resume-button" onClick={() => { onRequest("running"); }}>
            <PlayIcon size={13} /> {wakeable ? "Wake" : phase === "error" && !isLimit(model.agentReason) ? "Try again" : "Resume"}
          </button>
        )}
      </span>
    </div>
  );
}
