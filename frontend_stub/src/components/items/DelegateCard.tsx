/** Work that was handed to sub-agents: who was asked what, what they do at the moment, and what they said last. */
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { objectField, stringField, stringListField } from "../../protocol/fields";
import { UsersIcon } from "../common/icons";
import { Markdown } from "../common/Markdown";
import { LiveSteps } from "./LiveSteps";
import { Fold, Step } from "./Step";
import { Underway, underwayTone } from "./Underway";

interface DelegateCardProps {
  readonly foldKey: string;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  readonly liveOutput: string;
  readonly awake: boolean;
}

const REPORTS = /^(Completed delegation of |Task ID: )/;
const FAILURES = /^(Completed delegation of \d+ tasks with \d+ errors|Task ID: .*\n.*\nStatus: error)/;

/** The observation of a call that was not even begun reports of nobody. */
function isFailure(action: ActionEvent | null, observation: ObservationEvent | null): boolean {
  if (observation === null) return false;
  const report = observation.content || observation.message;
  if (observation.observation === "error" || FAILURES.test(report)) return true;
  const inputs = (action === null ? null : objectField(action.args, "inputs")) ?? {};
  if (stringField(inputs, "command") === "spawn") return !report.startsWith("Spawned ");
  const isReport = REPORTS.test(report) || Object.keys(objectField(observation.extras, "outputs") ?? {}).length > 0;
  return observation.observation === "delegate" && !isReport;
}

/** What each of them said last, by its name; empty where the report has another form. */
function reportsOf(observation: ObservationEvent | null): readonly (readonly [string, string])[] {
  const outputs = (observation === null ? null : objectField(observation.extras, "outputs")) ?? {};
  const result = stringField(outputs, "result");
  if (stringField(outputs, "task_id") !== "") return result === "" ? [] : [["", result]];
  return Object.keys(outputs).map((id) => [id, stringField(outputs, id)] as const);
}

interface Asked {
  readonly title: string;
  /** Who, and what they are to do. */
  readonly tasks: readonly (readonly [string, string])[];
}

export function askedOf(action: ActionEvent | null): Asked {
  if (action === null) return { title: "Sub-agents reported", tasks: [] };
  const agent = stringField(action.args, "agent");
  const inputs = objectField(action.args, "inputs") ?? {};
  if (stringField(inputs, "command") === "spawn") {
    return { title: `Made sub-agents: ${stringListField(inputs, "ids").join(", ")}`, tasks: [] };
  }
  const task = stringField(inputs, "task");
  if (task !== "") return { title: `Asked a sub-agent: ${stringField(inputs, "description") || agent}`, tasks: [[agent, task]] };
  const tasks = Object.keys(inputs).map((id) => [id, stringField(inputs, id)] as const);
  return { title: tasks.length === 1 ? `Asked the sub-agent ${agent}` : `Asked the sub-agents ${agent}`, tasks };
}

export function DelegateCard({ foldKey, action, observation, liveOutput, awake }: DelegateCardProps) {
  const asked = askedOf(action);
  const report = observation === null ? "" : observation.content || observation.message;
  const busy = observation === null && awake;
  const bad = isFailure(action, observation);
  const reports = bad ? [] : reportsOf(observation);
  return (
    <Step icon={<UsersIcon size={14} />} tone={bad ? "bad" : busy ? underwayTone(action) : "plain"} testId="delegate-card" action={action}>
      <Fold
        foldKey={foldKey}
        title={asked.title}
        {...(busy ? { aside: <Underway action={action} /> } : {})}
        initiallyOpen={bad}
      >
        {asked.tasks.length > 0 && (
          <dl className="facts">
            {asked.tasks.map(([id, task]) => (
              <div key={id} className="fact">
                <dt>{id}</dt>
                <dd dir="auto">{task}</dd>
              </div>
            ))}
          </dl>
        )}
        {reports.map(([id, text]) => (
          <section key={id} className="report">
            {id !== "" && <h3 className="report-name">{id}</h3>}
            <Markdown text={text} />
          </section>
        ))}
        {report !== "" && reports.length === 0 && (
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
          <pre className="file-text wrap" tabIndex={0} aria-label="Report">
            {report}
          </pre>
        )}
      </Fold>
      {busy && liveOutput !== "" && <LiveSteps text={liveOutput} />}
    </Step>
  );
}
