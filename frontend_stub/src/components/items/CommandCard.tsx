/** A command (or a notebook cell) as a terminal: what was typed, what came back, how it ended. */
import { useEffect, useRef } from "react";
import { useNow } from "../../app/hooks";
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { booleanField, numberField, objectField, stringField, stringListField } from "../../protocol/fields";
import { formatDuration, formatElapsed, parseTimestamp } from "../../state/time";
import { Ansi } from "../common/Ansi";
import { plainOutput } from "../common/ansi";
import { CopyButton } from "../common/CopyButton";
import { useFold } from "../common/folds";
import { TerminalIcon } from "../common/icons";
import { Picture } from "../common/Picture";
import { Spinner } from "../common/Spinner";
import { Unfold } from "../common/Unfold";
import { Visible } from "../common/Visible";
import { Step } from "./Step";
import type { Tone } from "./Step";

/** Longer output is folded to its last lines: they hold the result. */
const SHOWN_LINES = 14;
const COMMAND_LINES = 8;
/** While a command runs, only the end of its output is drawn. */
const LIVE_CHARACTERS = 16_000;

export type CommandStatus = "waiting" | "running" | "ok" | "failed" | "unfinished" | "unanswered" | "rejected" | "stopped" | "not-run";

export interface CommandFacts {
  readonly status: CommandStatus;
  readonly exitCode: number | null;
}

/** What the model is told of the kernel behind each cell; people know it. */
const KERNEL_FACTS = /\n?\[Jupyter (?:current working directory|Python interpreter): [^\n]*\]/g;
const RAISED = /^(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|Warning|StopIteration)(?::|$)/;
const CUT_SHORT = /^\[(?:Execution timed out|The kernel )/;

/** The protocol calls every cell a success: that it failed is told by its last line, or by one of ours. */
function hasFailed(content: string): boolean {
  const lines = plainOutput(content).replace(KERNEL_FACTS, "").trimEnd().split("\n");
  const last = lines.findLast((line) => !line.startsWith("["));
  const traced = lines.some((line) => /Traceback \(most recent call last\)|^ *(?:Cell In|File ).*line \d+/.test(line));
  return (traced && last !== undefined && RAISED.test(last)) || lines.some((line) => CUT_SHORT.test(line));
}

interface CommandState {
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  /** False when nothing runs any more. */
  readonly awake: boolean;
}

/** How a command stands. Exit code -1 means that it still runs, or that its end is not known. */
export function commandFacts({ action, observation, awake }: CommandState): CommandFacts {
  if (observation === null) {
    if (!awake) return { status: "unanswered", exitCode: null };
    const state = action === null ? "" : stringField(action.args, "confirmation_state");
    return { status: state === "awaiting_confirmation" ? "waiting" : "running", exitCode: null };
  }
  if (observation.observation === "user_rejected") return { status: "rejected", exitCode: null };
  if (observation.observation === "error") {
    const id = stringField(observation.extras, "error_id");
    if (id.endsWith("_NOT_EXECUTED_STOPPED")) return { status: "stopped", exitCode: null };
    return { status: id.includes("NOT_EXECUTED") ? "not-run" : "failed", exitCode: null };
  }
  if (observation.observation === "run_ipython") {
    return { status: observation.success === false || hasFailed(observation.content) ? "failed" : "ok", exitCode: null };
  }
  const metadata = objectField(observation.extras, "metadata") ?? {};
  const exitCode = numberField(metadata, "exit_code") ?? -1;
  if (exitCode === -1) return { status: "unfinished", exitCode };
  return { status: exitCode === 0 ? "ok" : "failed", exitCode };
}

const TONES: Readonly<Record<CommandStatus, Tone>> = {
  waiting: "warn",
  running: "busy",
  ok: "ok",
  failed: "bad",
  unfinished: "warn",
  unanswered: "plain",
  rejected: "plain",
  stopped: "warn",
  "not-run": "plain",
};

function verdict(facts: CommandFacts): string {
  switch (facts.status) {
    case "waiting":
      return "waits for you";
    case "running":
      return "running";
    case "ok":
      return facts.exitCode === null ? "done" : "exit 0";
    case "failed":
      return facts.exitCode === null ? "failed" : `exit ${facts.exitCode}`;
    case "unfinished":
      return "still running";
    case "unanswered":
    case "not-run": // or it is unknown what became of it: the sandbox was lost
      return "no result";
    case "rejected":
      return "rejected";
    case "stopped":
      return "stopped";
  }
}

function Elapsed({ since }: { readonly since: string }) {
  const now = useNow(1_000);
  const start = parseTimestamp(since);
  return start === null ? null : <span className="term-time">{formatElapsed(now - start)}</span>;
}

function LiveOutput({ text }: { readonly text: string }) {
  const box = useRef<HTMLPreElement>(null);
  useEffect(() => {
    if (box.current !== null) box.current.scrollTop = box.current.scrollHeight;
  }, [text]);
  return (
    <pre ref={box} className="term-output live" data-testid="live-output">
      <Ansi text={text.slice(-LIVE_CHARACTERS)} />
    </pre>
  );
}

interface FinalOutputProps {
  readonly text: string;
  readonly foldKey: string;
}

function FinalOutput({ text, foldKey }: FinalOutputProps) {
  const [open, setOpen] = useFold(`${foldKey}:output`);
  const body = text.replace(/\s+$/, "");
  if (body === "") return <p className="term-empty">No output</p>;
  const lines = body.split("\n");
  const long = lines.length > SHOWN_LINES + 4;
  const shown = long && !open ? lines.slice(-SHOWN_LINES).join("\n") : body;
  return (
    <>
      {long && (
        <Unfold open={open} onToggle={setOpen} more={`Show ${lines.length - SHOWN_LINES} earlier lines`} less="Show the end only" className="term-unfold" />
      )}
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus */}
      <pre className="term-output" tabIndex={0} aria-label="Output">
        <Ansi text={shown} />
      </pre>
    </>
  );
}

function isResult(observation: ObservationEvent): boolean {
  return observation.observation === "run" || observation.observation === "run_ipython";
}

/** The message of a command's end only repeats the command; that of an error may be all there is. */
function outputOf(observation: ObservationEvent): string {
  if (observation.observation === "run_ipython") return observation.content.replace(KERNEL_FACTS, "");
  return isResult(observation) ? observation.content : observation.content || observation.message;
}

/** What was typed; a long text, such as a file written from the shell, is folded to its beginning. */
function Command({ text, prompt, foldKey }: { readonly text: string; readonly prompt: string; readonly foldKey: string }) {
  const [open, setOpen] = useFold(`${foldKey}:command`);
  const lines = text.replace(/\n$/, "").split("\n");
  const long = lines.length > COMMAND_LINES + 3;
  return (
    <div className="term-typed">
      <pre className="term-command">
        <span className="term-prompt" aria-hidden="true">
          {prompt}{" "}
        </span>
        <code>
          <Visible text={long && !open ? lines.slice(0, COMMAND_LINES).join("\n") : text} />
        </code>
      </pre>
      {long && (
        <Unfold open={open} onToggle={setOpen} more={`Show ${lines.length - COMMAND_LINES} more lines`} less="Show the beginning only" className="term-unfold" />
      )}
    </div>
  );
}

function duration(action: ActionEvent | null, observation: ObservationEvent | null): string {
  const start = parseTimestamp(action?.timestamp ?? "");
  const end = parseTimestamp(observation?.timestamp ?? "");
  return start === null || end === null ? "" : formatDuration(end - start);
}

/** The pictures that a cell has drawn; those whose data is in the event, since nothing is fetched from elsewhere. */
function picturesOf(observation: ObservationEvent | null): readonly string[] {
  return observation === null ? [] : stringListField(observation.extras, "image_urls").filter((url) => url.startsWith("data:image/"));
}

interface CommandCardProps extends CommandState {
  readonly foldKey: string;
  readonly liveOutput: string;
}

export function CommandCard({ foldKey, action, observation, awake, liveOutput }: CommandCardProps) {
  const facts = commandFacts({ action, observation, awake });
  const isPython = (action?.action ?? observation?.observation) === "run_ipython";
  const typed = isPython ? "code" : "command";
  const command =
    (action === null ? "" : stringField(action.args, typed)) ||
    (observation === null ? "" : stringField(observation.extras, typed));
  const isInput = action !== null && booleanField(action.args, "is_input");
  const byUser = (action ?? observation)?.source === "user";
  const prompt = isPython ? ">>>" : isInput ? "›" : "$";
  const took = duration(action, observation);
  const pictures = picturesOf(observation);
  const output = observation === null ? "" : outputOf(observation);
  return (
    <Step
      icon={<TerminalIcon size={14} />}
      tone={TONES[facts.status]}
      testId="command-card"
      action={action}
      data={{ "data-status": facts.status }}
    >
      <div className="term">
        <div className="term-head">
          <Command text={command} prompt={prompt} foldKey={foldKey} />
          <CopyButton text={command} label="Copy command" />
        </div>
        {facts.status === "running" && liveOutput !== "" && <LiveOutput text={liveOutput} />}
        {observation !== null && (pictures.length === 0 || output.trim() !== "") && (
          <FinalOutput text={output} foldKey={foldKey} />
        )}
        {pictures.map((picture, index) => (
          <Picture key={index} className="term-picture" place={String(index)} src={picture} alt={`Drawn by the code, ${index + 1}`} />
        ))}
        <div className="term-foot">
          <span className={`term-verdict ${facts.status}`} data-testid="command-verdict">
            {facts.status === "running" && <Spinner />}
            {verdict(facts)}
          </span>
          {facts.status === "running" && action !== null && <Elapsed since={action.timestamp} />}
          {took !== "" && facts.status !== "rejected" && facts.status !== "not-run" && <span className="term-time">{took}</span>}
          {byUser && <span className="term-note">run by you</span>}
          {output.trim() !== "" && <CopyButton text={() => plainOutput(output)} label="Copy output" />}
          {isInput && <span className="term-note">typed into the running command</span>}
        </div>
      </div>
    </Step>
  );
}
