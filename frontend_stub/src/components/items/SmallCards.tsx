/** Everything else that can stand in the history: thoughts, facts, tasks, tools, errors, and what is unknown. */
import type { ActionEvent, ObservationEvent, TaskItem } from "../../protocol/events";
import { objectField, objectListField, stringField, taskListField } from "../../protocol/fields";
import { explainReason } from "../../protocol/status";
import { useEffect, useState } from "react";
import { Link, useRoute } from "wouter";
import { useServices } from "../../app/services";
import type { McpSignIn } from "../../protocol/rest";
import { Json } from "../common/Data";
import { ErrorPageLink } from "../common/ErrorPageLink";
import { AlertIcon, CompassIcon, CompressIcon, InfoIcon, ListIcon, ThoughtIcon } from "../common/icons";
import { useScopedFold } from "../common/folds";
import { Markdown } from "../common/Markdown";
import { SignInButton } from "../common/SignInButton";
import { Unfold } from "../common/Unfold";
import { Fold, Step } from "./Step";

interface PairProps {
  readonly foldKey: string;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
}

function textOf(observation: ObservationEvent | null): string {
  return observation === null ? "" : observation.content || observation.message;
}

export function ThinkCard({ foldKey, action, observation }: PairProps) {
  const thought = action === null ? textOf(observation) : stringField(action.args, "thought");
  const firstLine = thought.trim().split("\n", 1)[0] ?? "";
  return (
    <Step icon={<ThoughtIcon size={14} />} testId="think-card">
      <Fold
        foldKey={foldKey}
        title={
          <>
            Thought <span className="dim ellipsis" dir="auto">{firstLine}</span>
          </>
        }
      >
        <Markdown text={thought} />
      </Fold>
    </Step>
  );
}

export function ErrorCard({ foldKey, observation }: { readonly foldKey: string; readonly observation: ObservationEvent }) {
  const errorId = stringField(observation.extras, "error_id");
  const isState = observation.extras.agent_state === "error";
  const text = textOf(observation);
  const told = explainReason(errorId || text, stringField(observation.extras, "detail"));
  const signIn = stringField(observation.extras, "sign_in");
  const title = signIn !== "" ? "A server of tools wants you to sign in" : errorId === "" && !isState ? "That did not work" : told.title;
  const details = errorId === "" && !isState ? text : errorId === "" ? told.details : text;
  const advice = errorId === "" && !isState ? "" : told.advice;
  const short = details.length <= 400 && details.split("\n").length <= 6;
  return (
    <Step icon={<AlertIcon size={14} />} tone="bad" testId="error-card">
      <div className="card error-card">
        <div className="card-head">
          <span className="card-title">{title}</span>
        </div>
        {details !== "" && short && <p className="card-error" dir="auto">{details}</p>}
        {details !== "" && !short && (
          <Fold foldKey={foldKey} title="Details">
            <pre className="file-text">{details}</pre>
          </Fold>
        )}
        {signIn !== "" && <SignInNotice id={signIn} />}
        {advice !== "" && (
          <p className="card-advice">
            {advice} {told.link === "settings" && <Link href="/settings">Open settings</Link>}<ErrorPageLink reason={errorId || text} />
          </p>
        )}
      </div>
    </Step>
  );
}

/** The way to sign in, or that it was done meanwhile. */
function SignInNotice({ id }: { readonly id: string }) {
  const { api } = useServices();
  const [, parameters] = useRoute("/conversations/:id");
  const [known, setKnown] = useState<McpSignIn>();

  useEffect(() => {
    let current = true;
    api.mcpSignIns().then(
      (found) => {
        if (current) setKnown(found.find((one) => one.id === id));
      },
      () => undefined, // The button works without it.
    );
    return () => {
      current = false;
    };
  }, [api, id]);

  return (
    <p className="card-advice" data-testid="mcp-sign-in-notice">
      {known?.state === "signed_in" ? (
        "You are signed in: its tools join with the agent's next step."
      ) : (
        <SignInButton id={id} server={known?.server ?? ""} conversationId={parameters?.id} />
      )}
    </p>
  );
}

export function CondensationCard({ foldKey, action, observation }: PairProps) {
  const summary = action === null ? textOf(observation) : stringField(action.args, "summary");
  const title =
    action?.action === "condensation_request" ? "Shortening the history for the model" : "Earlier history was shortened for the model";
  return (
    <Step icon={<CompressIcon size={14} />} testId="condensation-card">
      {summary === "" ? (
        <div className="line">{title}</div>
      ) : (
        <Fold foldKey={foldKey} title={title}>
          <Markdown text={summary} />
        </Fold>
      )}
    </Step>
  );
}

const TASK_WORDS: Readonly<Record<string, string>> = { done: "done", in_progress: "in progress", todo: "to do" };

function TaskRow({ task }: { readonly task: TaskItem }) {
  return (
    <li className={`task ${task.status}`}>
      <span className="task-box" aria-hidden="true" />
      <span>
        <bdi className="task-title">{task.title}</bdi>
        <span className="visually-hidden"> ({TASK_WORDS[task.status] ?? task.status})</span>
        {task.notes !== "" && <span className="task-notes" dir="auto">{task.notes}</span>}
      </span>
    </li>
  );
}

/** Of a longer list, so many are seen: those around the one at hand. */
const SHOWN_TASKS = 10;
const SLACK_TASKS = 4;
const DONE_BEFORE = 2;

function TaskRows({ tasks }: { readonly tasks: readonly TaskItem[] }) {
  const [open, setOpen] = useScopedFold("tasks");
  const long = tasks.length > SHOWN_TASKS + SLACK_TASKS;
  const next = tasks.findIndex((task) => task.status !== "done");
  const first = Math.max(0, Math.min((next < 0 ? tasks.length : next) - DONE_BEFORE, tasks.length - SHOWN_TASKS));
  const shown = long && !open ? tasks.slice(first, first + SHOWN_TASKS) : tasks;
  return (
    <>
      <ul className="tasks">
        {shown.map((task) => (
          <TaskRow key={task.id} task={task} />
        ))}
      </ul>
      {long && <Unfold open={open} onToggle={setOpen} more={`Show all ${tasks.length} tasks`} less="Show fewer tasks" />}
    </>
  );
}

export function TasksCard({ foldKey, action, observation }: PairProps) {
  const seen = observation === null ? [] : taskListField(observation.extras);
  const tasks = seen.length > 0 || action === null ? seen : taskListField(action.args);
  const done = tasks.filter((task) => task.status === "done").length;
  const looks = action !== null && stringField(action.args, "command") === "view";
  if (looks && tasks.length > 0) {
    return (
      <Step icon={<ListIcon size={14} />} testId="tasks-card" action={action}>
        <Fold foldKey={foldKey} title="Looked at its task list" aside={`${done} of ${tasks.length} done`}>
          <TaskRows tasks={tasks} />
        </Fold>
      </Step>
    );
  }
  return (
    <Step icon={<ListIcon size={14} />} testId="tasks-card" action={action}>
      {tasks.length === 0 ? (
        <div className="line">{textOf(observation) || "Looked at the task list"}</div>
      ) : (
        <div className="card">
          <div className="card-head">
            <span className="card-title">Tasks</span>
            <span className="dim">
              {done} of {tasks.length} done
            </span>
          </div>
          <TaskRows tasks={tasks} />
        </div>
      )}
    </Step>
  );
}

const FACTS: readonly (readonly [string, string])[] = [
  ["working_dir", "Folder"],
  ["repo_name", "Repository"],
  ["repo_branch", "Branch"],
  ["date", "Date"],
  ["repo_instructions", "Instructions"],
  ["conversation_instructions", "For this conversation"],
  ["additional_agent_instructions", "More"],
];

export function RecallLine({ foldKey, observation }: { readonly foldKey: string; readonly observation: ObservationEvent }) {
  const extras = observation.extras;
  const facts = FACTS.map(([name, label]) => [label, stringField(extras, name)] as const).filter(([, value]) => value !== "");
  const knowledge = objectListField(extras, "microagent_knowledge");
  const hosts = Object.entries(objectField(extras, "runtime_hosts") ?? {});
  const isKnowledge = stringField(extras, "recall_type") === "knowledge";
  if (isKnowledge && knowledge.length === 0) return null;
  return (
    <Step icon={<CompassIcon size={14} />} testId="recall-line">
      <Fold foldKey={foldKey} title={<span className="dim">{isKnowledge ? "Knowledge for this request" : "Workspace facts"}</span>}>
        <dl className="facts">
          {facts.map(([label, value]) => (
            <div key={label} className="fact">
              <dt>{label}</dt>
              <dd dir="auto">{value}</dd>
            </div>
          ))}
          {hosts.map(([host, port]) => (
            <div key={host} className="fact">
              <dt>Host</dt>
              <dd>
                {host}:{String(port)}
              </dd>
            </div>
          ))}
          {knowledge.map((entry, index) => (
            <div key={index} className="fact">
              <dt>{stringField(entry, "name")}</dt>
              <dd dir="auto">{stringField(entry, "content")}</dd>
            </div>
          ))}
          {facts.length + hosts.length + knowledge.length === 0 && <p className="dim">{textOf(observation)}</p>}
        </dl>
      </Fold>
    </Step>
  );
}

export function SystemLine({ foldKey, action }: { readonly foldKey: string; readonly action: ActionEvent }) {
  const tools = objectListField(action.args, "tools")
    .map((tool) => stringField(objectField(tool, "function") ?? {}, "name"))
    .filter((name) => name !== "");
  const agent = stringField(action.args, "agent_class");
  return (
    <Step icon={<InfoIcon size={14} />} testId="system-line">
      <Fold
        foldKey={foldKey}
        title={
          <span className="dim">
            Agent briefed{tools.length > 0 ? ` with ${tools.length} tools` : ""}
          </span>
        }
      >
        {agent !== "" && <p className="dim">{agent}</p>}
        {tools.length > 0 && (
          <p className="tools">
            {tools.map((tool) => (
              <code key={tool}>{tool}</code>
            ))}
          </p>
        )}
        <pre className="file-text wrap">{stringField(action.args, "content")}</pre>
      </Fold>
    </Step>
  );
}

export function NoticeLine({ action, observation }: PairProps) {
  const text = action === null ? textOf(observation) : action.message;
  return (
    <Step icon={<InfoIcon size={14} />} tone="warn" testId="notice-line" action={action}>
      <div className="line">{text || "The agent was found repeating itself."}</div>
    </Step>
  );
}

function words(name: string): string {
  const text = name.replaceAll("_", " ");
  return text.charAt(0).toUpperCase() + text.slice(1);
}

/** A type this page does not know yet: its name, and all of it on request. */
export function GenericCard({ foldKey, action, observation }: PairProps) {
  const name = action?.action ?? observation?.observation ?? "";
  const message = action === null ? textOf(observation) : action.message || textOf(observation);
  const bad = observation?.observation === "error";
  return (
    <Step icon={<InfoIcon size={14} />} tone={bad ? "bad" : "plain"} testId="generic-card" action={action}>
      <Fold
        foldKey={foldKey}
        title={
          <>
            {words(name)} <span className="dim ellipsis">{message.split("\n", 1)[0]}</span>
          </>
        }
      >
        {action !== null && <Json value={action.args} />}
        {observation !== null && <Json value={{ content: observation.content, ...observation.extras }} />}
      </Fold>
    </Step>
  );
}
