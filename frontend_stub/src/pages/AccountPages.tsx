/** The doors of a server whose users have accounts: a name and a password, or a link that counts once. */
import { useCallback, useState } from "react";
import type { ReactNode } from "react";
import { useDocumentTitle, useLoading } from "../app/hooks";
import { useServices } from "../app/services";
import { Field } from "../components/settings/Field";
import { Logo } from "../components/common/Logo";
import { AccountsApi } from "../net/accounts";
import { BASE_PATH } from "../net/base-path";
import type { LinkPurpose } from "../net/accounts";
import { ApiError, errorText } from "../net/http";
import { useReadable } from "../state/store";

interface DoorProps {
  readonly title: string;
  readonly text: string;
  readonly problem: string;
  readonly button: string;
  readonly ready: boolean;
  readonly onSubmit: () => Promise<void>;
  readonly children: ReactNode;
}

function Door({ title, text, problem, button, ready, onSubmit, children }: DoorProps) {
  const [busy, setBusy] = useState(false);
  const submit = async () => {
    setBusy(true);
    await onSubmit();
    setBusy(false);
  };
  return (
    <main className="login">
      <form
        className="login-card"
        aria-labelledby="login-title"
        onSubmit={(event) => {
          event.preventDefault();
          void submit();
        }}
      >
        <Logo size={44} />
        <h1 id="login-title">{title}</h1>
        {text !== "" && <p>{text}</p>}
        {children}
        <p className="form-error" role="alert" data-testid="login-error">
          {problem}
        </p>
        <button type="submit" className="button primary wide" disabled={busy || !ready} data-testid="login-submit">
          {busy ? "A moment" : button}
        </button>
      </form>
    </main>
  );
}

export function AccountLogin() {
  const { accountsRequest, keeper, loadAnew } = useServices();
  const byProvider = useReadable(keeper.byProvider);
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [problem, setProblem] = useState("");
  useDocumentTitle("Sign in");

  const submit = async () => {
    setProblem("");
    try {
      await new AccountsApi(accountsRequest).signIn(name.trim(), password);
      keeper.drop();
      loadAnew();
    } catch (error) {
      setProblem(errorText(error));
    }
  };

  return (
    <Door title="Drydock" text="Sign in with your name, or your address, and your password." problem={problem} button="Sign in" ready={name.trim() !== "" && password !== ""} onSubmit={submit}>
      <Field label="Name">
        {({ id }) => (
          <input
            id={id}
            autoComplete="username"
            autoCapitalize="none"
            spellCheck={false}
            value={name}
            // eslint-disable-next-line jsx-a11y/no-autofocus -- the page has nothing else to do
            autoFocus
            data-testid="login-name"
            onChange={(event) => { setName(event.target.value); }}
          />
        )}
      </Field>
      <Field label="Password">
        {({ id }) => (
          <input
            id={id}
            type="password"
            autoComplete="current-password"
            value={password}
            data-testid="login-password"
            onChange={(event) => { setPassword(event.target.value); }}
          />
        )}
      </Field>
      {byProvider && (
        <p>
          Or <a href={providerAddress()} data-testid="login-provider">sign in with your organisation’s account</a>.
        </p>
      )}
    </Door>
  );
}

/** Where a browser is sent to sign in elsewhere, and then comes back to this page. */
function providerAddress(): string {
  const here = window.location.pathname.slice(BASE_PATH.length) + window.location.search;
  return `${BASE_PATH}/api/auth/oidc/begin?then=${encodeURIComponent(here)}`;
}

export function WelcomePage() {
  const { accountsRequest, keeper, link, loadAnew } = useServices();
  const [purpose, setPurpose] = useState<LinkPurpose | null>(null);
  const [name, setName] = useState("");
  const [password, setPassword] = useState("");
  const [problem, setProblem] = useState("");
  const [wrong, setWrong] = useState<ReadonlyMap<string, string>>(new Map());
  useDocumentTitle("Welcome");

  const load = useCallback(async () => {
    if (link !== "") setPurpose(await new AccountsApi(accountsRequest).purpose(link));
  }, [accountsRequest, link]);
  const loadProblem = useLoading(load);
  const told = link === "" ? "Open the whole link that you were given: this address is a part of it." : loadProblem;

  const submit = async () => {
    setProblem("");
    setWrong(new Map());
    try {
      await new AccountsApi(accountsRequest).useLink(link, name, password);
      keeper.drop();
      loadAnew();
    } catch (error) {
      const fields = error instanceof ApiError ? error.fields : new Map<string, string>();
      setWrong(fields);
      if (fields.size === 0) setProblem(errorText(error));
    }
  };

  const isNew = purpose?.name === "";
  const text =
    purpose === null ? "" : isNew ? `Choose the name and the password with which you sign in from now on. You will be ${purpose.role === "administrator" ? "an" : "a"} ${purpose.role}.` : `Choose another password, ${purpose.name}. You will be signed out everywhere else.`;
  return (
    <Door title={isNew ? "Welcome to Drydock" : "Drydock"} text={text} problem={problem || told} button={isNew ? "Begin" : "Store it, and sign in"} ready={purpose !== null && password !== "" && (!isNew || name.trim() !== "")} onSubmit={submit}>
      {isNew && (
        <Field label="Name" error={wrong.get("name")} help="Letters, digits and . _ - @ +">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} aria-invalid={wrong.has("name")} autoComplete="username" autoCapitalize="none" spellCheck={false} value={name} data-testid="welcome-name" onChange={(event) => { setName(event.target.value); }} />
          )}
        </Field>
      )}
      {purpose !== null && (
        <Field label="Password" error={wrong.get("password")} help="At least 12 characters, such as four unusual words.">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} aria-invalid={wrong.has("password")} type="password" autoComplete="new-password" value={password} data-testid="welcome-password" onChange={(event) => { setPassword(event.target.value); }} />
          )}
        </Field>
      )}
    </Door>
  );
}
