import { useFold } from "./folds";
import type { DiffLine, FileDiff } from "./diff";
import { shortPath } from "./paths";
import { Unfold } from "./Unfold";
import { Visible } from "./Visible";

const SHOWN_LINES = 40;
const SIGNS: Readonly<Record<DiffLine["kind"], string>> = { added: "+", removed: "−", same: " ", gap: "⋯", file: "" };
const SPOKEN: Readonly<Record<DiffLine["kind"], string>> = { added: "added", removed: "removed", same: "", gap: "", file: "" };

/** Lines added and removed, with their numbers where these are known. Long ones are folded. */
export function DiffView({ diff, foldKey }: { readonly diff: FileDiff; readonly foldKey: string }) {
  const [open, setOpen] = useFold(`${foldKey}:diff`);
  const folded = !open && diff.lines.length > SHOWN_LINES + 5;
  const shown = folded ? diff.lines.slice(0, SHOWN_LINES) : diff.lines;
  const hasOld = diff.lines.some((line) => line.oldNumber !== null);
  const hasNew = diff.lines.some((line) => line.newNumber !== null);
  return (
    <div className="diff" data-testid="diff">
      {/* eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus */}
      <div className="diff-scroll" role="group" aria-label="Changed lines" tabIndex={0}>
        <table className="diff-table">
          <tbody>
            {shown.map((line, index) =>
              line.kind === "file" ? (
                <tr key={index} className="diff-line file">
                  <th colSpan={2 + Number(hasOld) + Number(hasNew)} scope="colgroup">
                    <Visible text={shortPath(line.text)} />
                  </th>
                </tr>
              ) : (
              <tr key={index} className={`diff-line ${line.kind}`}>
                {hasOld && <td className="diff-number">{line.oldNumber}</td>}
                {hasNew && <td className="diff-number">{line.newNumber}</td>}
                <td className="diff-sign">
                  <span aria-hidden="true">{SIGNS[line.kind]}</span>
                  <span className="visually-hidden">{SPOKEN[line.kind]}</span>
                </td>
                <td className="diff-text"><Visible text={line.text} /></td>
              </tr>
              ),
            )}
          </tbody>
        </table>
      </div>
      {(folded || open) && (
        <Unfold open={!folded} onToggle={setOpen} more={`Show all ${diff.lines.length} lines`} less="Show fewer lines" />
      )}
    </div>
  );
}
