/** A labelled field of a form, with a line of help that becomes what is wrong. */
import { useId } from "react";
import type { ReactNode } from "react";

interface FieldProps {
  readonly label: string;
  readonly help?: ReactNode;
  readonly error?: string | undefined;
  readonly children: (ids: { readonly id: string; readonly describedBy: string }) => ReactNode;
}

/** Beside a button that was pressed, unless the server answers at once. */
export function NotYet() {
  return (
    <span className="not-yet" role="status" data-testid="not-yet">
      Not stored yet: the server has not answered.
    </span>
  );
}

export function Field({ label, help, error, children }: FieldProps) {
  const id = useId();
  return (
    <div className={error === undefined ? "field" : "field wrong"}>
      <label className="field-label" htmlFor={id}>
        {label}
      </label>
      {children({ id, describedBy: `${id}-help` })}
      <p className="field-help" id={`${id}-help`}>
        {error ?? help}
      </p>
    </div>
  );
}
