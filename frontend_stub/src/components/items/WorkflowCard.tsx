/** A script of the model's that puts sub-agents to work: the script, what they do at the moment, and what it returned. */
import type { ActionEvent, ObservationEvent } from "../../protocol/events";
import { objectField, stringField } from "../../protocol/fields";
import { CodeBlock } from "../common/CodeBlock";
import { UsersIcon } from "../common/icons";
import { LiveSteps } from "./LiveSteps";
import { mcpResult } from "./McpCard";
import { Fold, Step } from "./Step";
import { Underway, underwayTone } from "./Underway";

interface WorkflowCardProps {
  readonly foldKey: string;
  readonly action: ActionEvent | null;
  readonly observation: ObservationEvent | null;
  readonly liveOutput: string;
  readonly awake: boolean;
}

const SUB_AGENTS = /^Sub-agents: (.+)$/m;

function scriptOf(action: ActionEvent | null): string {
  if (action === null || stringField(action.args, "name") !== "workflow") return "";
  return stringField(objectField(action.args, "arguments") ?? {}, "script");
}

export function isWorkflow(action: ActionEvent | null): boolean {
  return scriptOf(action) !== "";
}

export function WorkflowCard({ foldKey, action, observation, liveOutput, awake }: WorkflowCardProps) {
  const busy = observation === null && awake;
  const result = observation === null ? null : mcpResult(observation);
  const bad = result?.bad === true;
  const asked = (action === null ? null : objectField(action.args, "arguments")) ?? {};
  const description = stringField(asked, "description");
  const counted = result === null ? "" : (SUB_AGENTS.exec(result.text)?.[1] ?? "");
  return (
    <Step icon={<UsersIcon size={14} />} tone={bad ? "bad" : busy ? underwayTone(action) : "plain"} testId="workflow-card" action={action}>
      <Fold
        foldKey={foldKey}
        initiallyOpen={bad}
        title={description === "" ? "A script of sub-agents" : `A script of sub-agents: ${description}`}
        {...(busy ? { aside: <Underway action={action} /> } : counted === "" ? {} : { aside: <span>{counted}</span> })}
      >
        <CodeBlock text={scriptOf(action)} language="python" />
        {result !== null && result.text !== "" && (
          // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
          <pre className="file-text wrap" tabIndex={0} aria-label="Result">
            {result.text}
          </pre>
        )}
      </Fold>
      {busy && liveOutput !== "" && <LiveSteps text={liveOutput} />}
    </Step>
  );
}
