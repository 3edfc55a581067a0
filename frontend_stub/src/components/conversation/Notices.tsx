/** What went wrong outside the agent's own work, and what can be done. */
import { Link } from "wouter";
import { explain, FROZEN } from "../../protocol/status";
import type { Notice } from "../../state/model";
import { GENERAL_ERROR, STORAGE } from "../../state/notices";
import { ErrorPageLink } from "../common/ErrorPageLink";
import { AlertIcon, CloseIcon, InfoIcon } from "../common/icons";

interface WarningProps {
  readonly text: string;
  readonly kind: "waiting" | "warning" | "outage" | "frozen" | "obstacle";
}

const LOOKS: Readonly<Record<WarningProps["kind"], string>> = {
  waiting: "notice plain",
  warning: "notice warning",
  outage: "notice",
  frozen: "notice warning",
  obstacle: "notice warning",
};

/** Under which the server has a page about what lasts. */
const IDS: Readonly<Partial<Record<WarningProps["kind"], string>>> = { outage: STORAGE, frozen: FROZEN };

/** Why it does not go on, or what is wrong with the sandbox's network or the server's storage, for as long as it is so. */
export function Warning({ text, kind }: WarningProps) {
  if (text === "") return null;
  return (
    <div className="notices" role={kind === "outage" ? "alert" : "status"}>
      <div className={LOOKS[kind]} data-testid={kind}>
        {kind === "waiting" ? <InfoIcon size={17} /> : <AlertIcon size={17} />}
        <div className="notice-text">
          <span dir="auto">{text}</span><ErrorPageLink reason={IDS[kind] ?? ""} />
        </div>
      </div>
    </div>
  );
}

export function Notices({ notices, onDismiss }: { readonly notices: readonly Notice[]; readonly onDismiss: (key: string) => void }) {
  if (notices.length === 0) return null;
  return (
    <div className="notices" role="alert">
      {notices.map((notice) => {
        const text = explain(notice.text) === null ? notice.text : "";
        // The general id has nothing to add to a text.
        const told = explain(notice.statusId === GENERAL_ERROR && text !== "" ? "" : notice.statusId) ?? explain(notice.text);
        return (
          <div key={notice.key} className="notice" data-testid="notice">
            <AlertIcon size={17} />
            <div className="notice-text">
              {told !== null && <strong>{told.title}</strong>}
              {text !== "" && <span dir="auto">{text}</span>}
              {told !== null && (
                <span className="notice-advice">
                  {told.advice} {told.link === "settings" && <Link href="/settings">Open settings</Link>}<ErrorPageLink reason={notice.statusId} />
                </span>
              )}
              {told === null && text === "" && <span>Something went wrong. Send a message to try again.</span>}
            </div>
            <button type="button" className="icon-button small" aria-label="Dismiss" data-testid="notice-dismiss" onClick={() => { onDismiss(notice.key); }}>
              <CloseIcon size={15} />
            </button>
          </div>
        );
      })}
    </div>
  );
}
