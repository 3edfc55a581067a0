/** The button that shows all of a long text, or folds it again. */
interface UnfoldProps {
  readonly open: boolean;
  readonly onToggle: (open: boolean) => void;
  /** What the button says while the text is folded. */
  readonly more: string;
  /** What it says while all is shown. */
  readonly less: string;
  readonly className?: string;
}

export function Unfold({ open, onToggle, more, less, className = "" }: UnfoldProps) {
  return (
    <button
      type="button"
      className={`unfold ${className}`.trim()}
      aria-expanded={open}
      onClick={() => {
        onToggle(!open);
      }}
    >
      {open ? less : more}
    </button>
  );
}
