/** The agent asks before it acts: what it wants to do, and the two answers. */
import { useEffect, useState } from "react";
import type { ActionEvent } from "../../protocol/events";
import { HIGH_RISK } from "../../protocol/events";
import { numberField, stringField } from "../../protocol/fields";
import { AlertIcon } from "../common/icons";
import { Visible } from "../common/Visible";

function describe(action: ActionEvent): readonly [string, string] {
  switch (action.action) {
    case "run":
      return ["run a command", stringField(action.args, "command")];
    case "run_ipython":
      return ["run Python code", stringField(action.args, "code")];
    case "edit":
    case "write":
      return ["change a file", stringField(action.args, "path")];
    case "read":
      return ["read a file", stringField(action.args, "path")];
    case "call_tool_mcp":
      return ["use a tool", stringField(action.args, "name")];
    case "browse":
      return ["open a page", stringField(action.args, "url")];
    case "browse_interactive":
      return ["use its browser", stringField(action.args, "browser_actions")];
    case "task_tracking":
      return ["change its list of tasks", action.message];
    case "delegate":
      return ["have a sub-agent work", action.message];
    default:
      return [`do “${action.action.replaceAll("_", " ")}”`, action.message];
  }
}

export type Answer = "approve" | "approve-for-good" | "reject";

interface ApprovalBarProps {
  /** Everything that one answer decides on. */
  readonly actions: readonly ActionEvent[];
  /** `reason` is what the user says of a refusal; empty: nothing. */
  readonly onAnswer: (answer: Answer, reason: string) => void;
}

export function ApprovalBar({ actions, onAnswer }: ApprovalBarProps) {
  const [reason, setReason] = useState("");
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (!event.metaKey && !event.ctrlKey) return;
      if (event.key === "Enter") onAnswer("approve", "");
      else if (event.key === "Backspace" && event.shiftKey) onAnswer("reject", reason.trim());
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => {
      window.removeEventListener("keydown", onKeyDown);
    };
  }, [onAnswer, reason]);

  const deeds = actions.map(describe);
  const [first] = deeds;
  const deed = first === undefined ? "go on" : deeds.length === 1 ? first[0] : `do ${deeds.length} things`;
  const risky = actions.some((action) => numberField(action.args, "security_risk") === HIGH_RISK);
  return (
    <div className={risky ? "approval risky" : "approval"} role="group" aria-label="Approval" data-testid="approval-bar">
      <p className="approval-text">
        The agent wants to {deed}.
        {risky && (
          <span className="approval-risk">
            <AlertIcon size={15} /> Rated high risk: look closely.
          </span>
        )}
      </p>
      <div className="approval-subjects">
        {deeds.map(([what, subject], index) => (
          <div key={actions[index]?.id}>
            {deeds.length > 1 && <p className="approval-deed">{what}</p>}
            {subject !== "" && <pre className="approval-subject"><Visible text={subject} /></pre>}
          </div>
        ))}
      </div>
      <input
        type="text"
        className="approval-reason"
        data-testid="reject-reason"
        aria-label="Why not"
        dir="auto"
        placeholder="Why not? The agent reads it when you reject (optional)"
        value={reason}
        onChange={(event) => { setReason(event.target.value); }}
        onKeyDown={(event) => {
          if (event.key === "Enter" && !event.ctrlKey && !event.metaKey && !event.nativeEvent.isComposing && reason.trim() !== "") onAnswer("reject", reason.trim());
        }}
      />
      <div className="approval-actions">
        <button type="button" className="button" data-testid="reject-button" title="Ctrl+Shift+Backspace" onClick={() => { onAnswer("reject", reason.trim()); }}>
          {deeds.length > 1 ? "Reject all" : "Reject"}
        </button>
        <button
          type="button"
          className="button"
          data-testid="approve-for-good-button"
          title="In this conversation nothing waits for you any more"
          onClick={() => { onAnswer("approve-for-good", ""); }}
        >
          Approve and don’t ask again
        </button>
        <button type="button" className="button primary" data-testid="approve-button" title="Ctrl+Enter" onClick={() => { onAnswer("approve", ""); }}>
          {deeds.length > 1 ? "Approve all" : "Approve"}
        </button>
      </div>
    </div>
  );
}
