/** The frame of everything the agent does: a mark on the line that runs down the history, and what belongs to it. */
import type { ReactNode } from "react";
import { useId } from "react";
import type { ActionEvent } from "../../protocol/events";
import { stringField } from "../../protocol/fields";
import { useFold } from "../common/folds";
import { ChevronIcon } from "../common/icons";
import { Markdown } from "../common/Markdown";

export type Tone = "plain" | "ok" | "bad" | "warn" | "busy";

interface StepProps {
  readonly icon: ReactNode;
  readonly tone?: Tone;
  readonly testId: string;
  /** The action's thought is what the agent said before acting: it stands above. */
  readonly action?: ActionEvent | null;
  readonly children: ReactNode;
  readonly data?: Readonly<Record<`data-${string}`, string | undefined>>;
}

export function Step({ icon, tone = "plain", testId, action = null, children, data = {} }: StepProps) {
  const thought = action === null ? "" : stringField(action.args, "thought").trim();
  return (
    <>
      {thought !== "" && (
        <div className="step speech">
          <div className="step-rail" />
          <div className="step-content" data-testid="thought">
            <Markdown text={thought} />
          </div>
        </div>
      )}
      <div className="step" data-testid={testId} {...data}>
        <div className="step-rail">
          <span className={`step-mark ${tone}`}>{icon}</span>
        </div>
        <div className="step-content">{children}</div>
      </div>
    </>
  );
}

interface FoldProps {
  readonly foldKey: string;
  readonly title: ReactNode;
  readonly aside?: ReactNode;
  readonly initiallyOpen?: boolean;
  readonly children: ReactNode;
}

/** One line that opens to more. */
export function Fold({ foldKey, title, aside, initiallyOpen = false, children }: FoldProps) {
  const [open, setOpen] = useFold(foldKey, initiallyOpen);
  const id = useId();
  return (
    <div className={open ? "fold open" : "fold"}>
      <button
        type="button"
        className="fold-head"
        aria-expanded={open}
        aria-controls={id}
        onClick={() => {
          setOpen(!open);
        }}
      >
        <span className="fold-title">{title}</span>
        {aside !== undefined && <span className="fold-aside">{aside}</span>}
        <span className="fold-chevron">
          <ChevronIcon size={15} />
        </span>
      </button>
      {open && (
        <div className="fold-body" id={id}>
          {children}
        </div>
      )}
    </div>
  );
}
