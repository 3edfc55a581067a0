/** Status frames: steps of the start, retries, titles, and what went wrong outside the agent's own work. */
import type { StatusFrame } from "../protocol/frames";
import { FROZEN, WAITING_FOR_ENGINE, isErrorStatus, isWaiting, progressLabel } from "../protocol/status";
import type { ConversationModel, Notice } from "./model";

/** The id of whatever has no id of its own: it says nothing by itself. */
export const GENERAL_ERROR = "STATUS$ERROR";
export const STORAGE = "STATUS$ERROR_STORAGE";
/** With these a sandbox is there again, or is about to be. */
const SANDBOX_IS_UP: ReadonlySet<string> = new Set(["STATUS$STARTING_RUNTIME", "STATUS$RUNTIME_STARTED", "STATUS$READY"]);
const NOTICE_LIMIT = 4;
const PROGRESS_LIMIT = 12;

/** What the protocol puts before the reason of a failed start in its error frame. */
const FAILED_START = /^Failed to create agent session: /;

/** True when an error state says what the notice says; a state's reason may name the error's class in front. */
export function tellsSame(notice: Pick<Notice, "statusId" | "text">, reason: string): boolean {
  if (reason === "") return false;
  return notice.statusId === reason || (notice.text !== "" && reason.endsWith(notice.text));
}

export function takeStatus(model: ConversationModel, frame: StatusFrame, at: number): void {
  if (frame.title !== null) {
    if (model.info !== null && frame.message === model.conversationId) {
      model.info = { ...model.info, title: frame.title };
    }
    return;
  }
  if (frame.id === STORAGE) {
    model.outage = frame.message || progressLabel(frame.id);
    return;
  }
  if (frame.id === FROZEN) {
    model.frozen = frame.message || progressLabel(frame.id);
    return;
  }
  const waits = isWaiting(frame.id);
  if (frame.level === "error" && !waits) {
    const failure = { statusId: frame.id, text: frame.message };
    if (model.agentState === "error" && tellsSame(failure, model.agentReason)) return;
    model.failure = failure;
    addNotice(model, "error", frame.message, frame.id);
    return;
  }
  if (frame.id !== "STATUS$NETWORK_WARNING") endOutage(model);
  if (SANDBOX_IS_UP.has(frame.id)) endSandboxTrouble(model);
  if (waits) {
    model.waiting = waitingText(frame.id, frame.message);
    return;
  }
  if (frame.id === "STATUS$LLM_RETRY") {
    model.retry = frame.message || progressLabel(frame.id);
    return;
  }
  if (frame.id === "STATUS$NETWORK_WARNING") {
    model.warning = frame.message;
    return;
  }
  if (frame.id === "STATUS$STOPPED") {
    model.progress = []; // no step of the next start; the state says it
    return;
  }
  model.waiting = "";
  if (frame.id === WAITING_FOR_ENGINE) model.warning = frame.message;
  if (frame.id === "STATUS$STARTING_RUNTIME") model.warning = "";
  // A failed start is told as an error too; it is no step of the start.
  if (isErrorStatus(frame.id)) return;
  const label = frame.id === WAITING_FOR_ENGINE ? progressLabel(frame.id) : frame.message || progressLabel(frame.id);
  if (label === "" || model.progress.at(-1)?.label === label) return;
  // A start that begins anew, since the engine is away, goes back to a step that it has made before.
  const before = model.progress.findIndex((step) => step.label === label);
  const made = before < 0 ? model.progress : model.progress.slice(0, before);
  const first = model.progress[before] ?? { label, at };
  model.progress = [...made, first].slice(-PROGRESS_LIMIT);
}

/** To be called when the server tells anew how things are: what lasts is told again then. */
export function endTroubles(model: ConversationModel): void {
  endOutage(model);
  endSandboxTrouble(model);
}

function endOutage(model: ConversationModel): void {
  model.outage = "";
  dropNotices(model, STORAGE);
}

function endSandboxTrouble(model: ConversationModel): void {
  model.frozen = "";
  dropNotices(model, "STATUS$ERROR_RUNTIME_DISCONNECTED");
}

function dropNotices(model: ConversationModel, statusId: string): void {
  if (!model.notices.some((entry) => entry.statusId === statusId)) return;
  model.notices = model.notices.filter((entry) => entry.statusId !== statusId);
}

/** What stands where the agent's state is shown; of what is held back there is more to say than has room there. */
export function waitingText(id: string, message: string): string {
  return id === "STATUS$HELD_BACK" || message === "" ? progressLabel(id) : message;
}

/** A refusal, or a failed start in front of the state that tells it too. */
export function takeErrorFrame(model: ConversationModel, message: string): void {
  const text = message.replace(FAILED_START, "");
  const told = model.agentState === "error" && tellsSame({ statusId: "", text }, model.agentReason);
  // What is refused since nothing can be stored is so as long as that lasts.
  if (!told) addNotice(model, "error", text, model.outage === "" ? "" : STORAGE);
}

export function addNotice(model: ConversationModel, level: Notice["level"], text: string, statusId: string): void {
  // A server may tell the same as an error and as a status; why a message was not taken stands at the message.
  if (text !== "" && model.pending.some((entry) => entry.refusal === text)) return;
  if (model.notices.some((entry) => (text === "" ? entry.statusId === statusId : entry.text === text))) return;
  model.noticeCount += 1;
  const notice = { key: `n${model.noticeCount}`, level, text, statusId };
  model.notices = [...model.notices, notice].slice(-NOTICE_LIMIT);
}
