/** The user's own account: password, tokens for programs, where they are signed in, and the way out. */
import { useCallback, useState } from "react";
import { useLoading } from "../../app/hooks";
import { useServices } from "../../app/services";
import { AccountsApi } from "../../net/accounts";
import type { AccessToken, SignIn } from "../../net/accounts";
import { errorText } from "../../net/http";
import { formatAgo, parseTimestamp } from "../../state/time";
import { Field } from "./Field";
import { People } from "./People";

const SCOPES: readonly (readonly [string, string])[] = [
  ["read", "Read"],
  ["write", "Change"],
  ["admin", "Administer"],
];

function ago(timestamp: string): string {
  const moment = parseTimestamp(timestamp);
  return moment === null ? "never" : formatAgo(moment, Date.now());
}

function day(timestamp: string): string {
  return timestamp === "" ? "until it is revoked" : `until ${timestamp.slice(0, 10)}`;
}

export default function Account({ name, role }: { readonly name: string; readonly role: string }) {
  const { accountsRequest, loadAnew, toasts } = useServices();
  const [api] = useState(() => new AccountsApi(accountsRequest));
  const [signIns, setSignIns] = useState<readonly SignIn[]>([]);
  const [tokens, setTokens] = useState<readonly AccessToken[]>([]);
  const [made, setMade] = useState("");
  const [failure, setFailure] = useState("");

  const load = useCallback(async () => {
    setSignIns(await api.signIns());
    setTokens(await api.tokens());
  }, [api]);
  const problem = useLoading(load);

  /** Does it, and shows what there is then; false when it failed. */
  const change = async (act: () => Promise<void>, done: string): Promise<boolean> => {
    setFailure("");
    try {
      await act();
      toasts.done(done);
      await load();
      return true;
    } catch (error) {
      setFailure(errorText(error));
      return false;
    }
  };

  const signOut = async () => {
    try {
      await api.signOut();
      loadAnew();
    } catch (error) {
      setFailure(errorText(error));
    }
  };

  return (
    <>
      <section className="panel" aria-labelledby="settings-account" data-testid="account">
        <h2 id="settings-account">Your account</h2>
        <p className="panel-note">
          You are <strong data-testid="account-name">{name}</strong>, {role}. This is where you are signed in:
        </p>
        <ul className="secret-list">
          {signIns.map((one) => (
            <li key={one.id} className="secret" data-testid="sign-in">
              <span className="secret-text">
                <span className="secret-name">{one.browser || "A program"}</span>
                <span className="dim">
                  {one.address}, {one.current ? "this browser" : `used ${ago(one.usedAt)}`}
                </span>
              </span>
              {!one.current && (
                <button type="button" className="link-button" data-testid="end-sign-in" onClick={() => void change(() => api.endSignIn(one.id), "That sign-in has ended.")}>
                  End
                </button>
              )}
            </li>
          ))}
        </ul>
        <button type="button" className="button secret-add" data-testid="account-sign-out" onClick={() => void signOut()}>
          Sign out here
        </button>
        <PasswordForm onChange={(current, password) => change(() => api.changePassword(current, password), "The new password counts. All other sign-ins have ended.")} />
      </section>
      <section className="panel" aria-labelledby="settings-tokens" data-testid="tokens">
        <h2 id="settings-tokens">Tokens</h2>
        <p className="panel-note">A program shows one as the header <code>X-Session-API-Key</code>, and may no more than it says.</p>
        <ul className="secret-list">
          {tokens.map((one) => (
            <li key={one.id} className="secret" data-testid="token">
              <span className="secret-text">
                <span className="secret-name">{one.name}</span>
                <span className="dim">
                  {one.scopes.join(", ")}; {day(one.expiresAt)}; used {ago(one.usedAt)}
                </span>
              </span>
              <button type="button" className="link-button" aria-label={`Revoke ${one.name}`} data-testid="revoke-token" onClick={() => void change(() => api.revokeToken(one.id), `${one.name} counts no more.`)}>
                Revoke
              </button>
            </li>
          ))}
        </ul>
        {made !== "" && (
          <p className="panel-note">
            This is it, shown this once: <code className="secret-name" data-testid="made-token">{made}</code>
          </p>
        )}
        <TokenForm
          isAdministrator={role === "administrator"}
          onMake={(title, scopes, days) =>
            change(async () => {
              setMade(await api.makeToken(title, scopes, days));
            }, `${title} is made. Copy it now: it is shown this once.`)
          }
        />
        {(failure || problem) !== "" && (
          <p className="form-error" role="alert" data-testid="account-error">
            {failure || problem}
          </p>
        )}
      </section>
      {role === "administrator" && <People api={api} />}
    </>
  );
}

function PasswordForm({ onChange }: { readonly onChange: (current: string, password: string) => Promise<boolean> }) {
  const [current, setCurrent] = useState("");
  const [password, setPassword] = useState("");
  const submit = async () => {
    if (!(await onChange(current, password))) return;
    setCurrent("");
    setPassword("");
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <div className="field-pair">
        <Field label="Password">
          {({ id }) => (
            <input id={id} type="password" autoComplete="current-password" value={current} data-testid="current-password" onChange={(event) => { setCurrent(event.target.value); }} />
          )}
        </Field>
        <Field label="New password" help="At least 12 characters.">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} type="password" autoComplete="new-password" value={password} data-testid="new-password" onChange={(event) => { setPassword(event.target.value); }} />
          )}
        </Field>
      </div>
      <button type="submit" className="button secret-add" disabled={current === "" || password === ""} data-testid="change-password">
        Change the password
      </button>
    </form>
  );
}

interface TokenFormProps {
  readonly isAdministrator: boolean;
  readonly onMake: (name: string, scopes: readonly string[], days: number | null) => Promise<boolean>;
}

function TokenForm({ isAdministrator, onMake }: TokenFormProps) {
  const [name, setName] = useState("");
  const [scopes, setScopes] = useState<readonly string[]>(["read", "write"]);
  const [days, setDays] = useState("90");
  const offered = SCOPES.filter(([scope]) => scope !== "admin" || isAdministrator);
  const submit = async () => {
    if (await onMake(name.trim(), scopes, days === "" ? null : Number(days))) setName("");
  };
  return (
    <form
      onSubmit={(event) => {
        event.preventDefault();
        void submit();
      }}
    >
      <div className="field-pair">
        <Field label="Name of a new token" help="Such as what it is for.">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} maxLength={100} autoComplete="off" value={name} data-testid="token-name" onChange={(event) => { setName(event.target.value); }} />
          )}
        </Field>
        <Field label="Days" help="Empty: until it is revoked.">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} type="number" min={1} max={3650} value={days} data-testid="token-days" onChange={(event) => { setDays(event.target.value); }} />
          )}
        </Field>
      </div>
      <fieldset className="choice">
        <legend className="field-label">It may</legend>
        <div className="choice-row">
          {offered.map(([scope, label]) => (
            <label key={scope} className="choice-option">
              <input
                type="checkbox"
                checked={scopes.includes(scope)}
                onChange={(event) => {
                  setScopes(event.target.checked ? [...scopes, scope] : scopes.filter((one) => one !== scope));
                }}
              />
              <span>{label}</span>
            </label>
          ))}
        </div>
      </fieldset>
      <button type="submit" className="button secret-add" disabled={name.trim() === "" || scopes.length === 0} data-testid="make-token">
        Make the token
      </button>
    </form>
  );
}
