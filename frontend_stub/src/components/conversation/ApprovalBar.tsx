/** The agent asks before it acts: what it wants to do, and the two answers. */
import { useEffect } from "react";
import type { ActionEvent } from "../../protocol/events";
import { HIGH_RISK } from "../../protocol/events";
import { numberField, stringField } from "../../protocol/fields";
import { AlertIcon } from "../common/icons";

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
    default:
      return [action.action.replaceAll("_", " "), action.message];
  }
}

interface ApprovalBarProps {
  readonly action: ActionEvent | null;
  readonly onAnswer: (approved: boolean) => void;
}

export function ApprovalBar({ action, onAnswer }: ApprovalBarProps) {
  useEffect(() => {
    const onKeyDown = (event: KeyboardEvent) => {
      if (!event.metaKey && !event.ctrlKey) return;
      if (event.key === "Enter") onAnswer(true);
      else if (event.key === "Backspace" && event.shiftKey) onAnswer(false);
      else return;
      event.preventDefault();
    };
    window.addEventListener("keydown", onKeyDown);
    return () => {
      window.removeEventListener("keydown", onKeyDown);
    };
  }, [onAnswer]);

  const [deed, subject] = action === null ? ["go on", ""] : describe(action);
  const risky = action !== null && numberField(action.args, "security_risk") === HIGH_RISK;
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
      {subject !== "" && <pre className="approval-subject">{subject}</pre>}
      <div className="approval-actions">
        <button type="button" className="button" data-testid="reject-button" title="Ctrl+Shift+Backspace" onClick={() => { onAnswer(false); }}>
          Reject
        </button>
        <button type="button" className="button primary" data-testid="approve-button" title="Ctrl+Enter" onClick={() => { onAnswer(true); }}>
          Approve
        </button>
      </div>
    </div>
  );
}
