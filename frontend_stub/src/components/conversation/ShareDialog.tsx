/** Who else may read a conversation, or write to it: links and users, made here and taken back. */
import { useCallback, useEffect, useId, useRef, useState } from "react";
import { useLoading } from "../../app/hooks";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";
import { SharesApi } from "../../net/shares";
import type { Access, Share } from "../../net/shares";
import { useReadable } from "../../state/store";
import { CopyButton } from "../common/CopyButton";
import { Field } from "../settings/Field";

const DAY = 86_400;
const TIMES: readonly (readonly [string, number | null])[] = [
  ["for a day", DAY],
  ["for a week", 7 * DAY],
  ["for a month", 30 * DAY],
  ["until I take it back", null],
];

function lastsUntil({ expiresAt, hasEnded }: Share): string {
  if (hasEnded) return "ended";
  return expiresAt === "" ? "until taken back" : `until ${new Date(expiresAt).toLocaleString()}`;
}

interface ShareDialogProps {
  readonly id: string;
  readonly onClose: () => void;
}

export default function ShareDialog({ id, onClose }: ShareDialogProps) {
  const { accountsRequest, config } = useServices();
  const withAccounts = (useReadable(config)?.DRYDOCK?.account ?? null) !== null;
  const dialog = useRef<HTMLDialogElement>(null);
  const title = useId();
  const [shares, setShares] = useState<readonly Share[]>([]);
  const [access, setAccess] = useState<Access>("read");
  const [time, setTime] = useState(1);
  const [user, setUser] = useState("");
  const [address, setAddress] = useState("");
  const [problem, setProblem] = useState("");
  const [busy, setBusy] = useState(false);

  useEffect(() => {
    const element = dialog.current;
    element?.showModal();
    return () => {
      element?.close();
    };
  }, []);

  const load = useCallback(async () => {
    setShares(await new SharesApi(accountsRequest).list(id));
  }, [accountsRequest, id]);
  const loadProblem = useLoading(load);

  const attempt = async (work: (api: SharesApi) => Promise<void>) => {
    setBusy(true);
    setProblem("");
    try {
      await work(new SharesApi(accountsRequest));
      await load();
    } catch (error) {
      setProblem(errorText(error));
    }
    setBusy(false);
  };
  const make = () =>
    attempt(async (api) => {
      setAddress("");
      setAddress(await api.share(id, access, TIMES[time]?.[1] ?? null, user.trim()));
      setUser("");
    });

  return (
    <dialog
      ref={dialog}
      className="dialog share-dialog"
      aria-labelledby={title}
      data-testid="share-dialog"
      onCancel={(event) => {
        event.preventDefault();
        onClose();
      }}
    >
      <h2 id={title}>Share this conversation</h2>
      <p>Whoever has a link reads everything that was said and done here, with the files. Settings and secrets stay yours.</p>
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void make();
        }}
      >
        {withAccounts && (
          <Field label="With" help="A user’s name. Empty: whoever has the link.">
            {({ id: field, describedBy }) => (
              <input
                id={field}
                aria-describedby={describedBy}
                autoCapitalize="none"
                spellCheck={false}
                value={user}
                data-testid="share-user"
                onChange={(event) => { setUser(event.target.value); }}
              />
            )}
          </Field>
        )}
        <div className="share-choice">
          <select aria-label="What they may do" value={access} data-testid="share-access" onChange={(event) => { setAccess(event.target.value as Access); }}>
            <option value="read">to read</option>
            <option value="write">to read and write</option>
          </select>
          <select aria-label="For how long" value={time} data-testid="share-time" onChange={(event) => { setTime(Number(event.target.value)); }}>
            {TIMES.map(([label], index) => (
              <option key={label} value={index}>
                {label}
              </option>
            ))}
          </select>
          <button type="submit" className="button primary" disabled={busy} data-testid="share-make">
            {user.trim() === "" ? "Make a link" : "Share"}
          </button>
        </div>
      </form>
      {address !== "" && (
        <div className="share-address">
          <input readOnly aria-label="Address" value={address} data-testid="share-address" onFocus={(event) => { event.target.select(); }} />
          <CopyButton text={address} />
        </div>
      )}
      <p className="form-error" role="alert" data-testid="share-problem">
        {problem || loadProblem}
      </p>
      {shares.length > 0 && (
        <ul className="share-list" aria-label="Shared">
          {shares.map((one) => (
            <li key={one.id} data-testid="share-entry">
              <span>
                {one.user === "" ? "Link" : one.user}, to {one.access === "write" ? "read and write" : "read"}, {lastsUntil(one)}
              </span>
              {!one.hasEnded && (
                <button type="button" className="button" disabled={busy} data-testid="share-take-back" onClick={() => void attempt((api) => api.takeBack(id, one.id))}>
                  Take back
                </button>
              )}
            </li>
          ))}
        </ul>
      )}
      <div className="dialog-actions">
        <button type="button" className="button" data-testid="share-close" onClick={onClose}>
          Done
        </button>
      </div>
    </dialog>
  );
}
