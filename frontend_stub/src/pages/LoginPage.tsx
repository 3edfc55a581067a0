/** The door of a server that asks for its token. */
import { useState } from "react";
import { useDocumentTitle } from "../app/hooks";
import { useServices } from "../app/services";
import { Logo } from "../components/common/Logo";
import { ApiError, errorText } from "../net/http";
import { isToken } from "../net/token";

const NOT_ACCEPTED = "The server does not accept this token. Check that it is complete.";

export function LoginPage() {
  const { api, keeper } = useServices();
  const [token, setToken] = useState("");
  const [remember, setRemember] = useState(false);
  const [checking, setChecking] = useState(false);
  const [error, setError] = useState(keeper.token === null ? "" : "The server does not accept the token kept here.");
  useDocumentTitle("Sign in");

  const submit = async () => {
    setChecking(true);
    setError("");
    const accepted = await tryToken();
    setChecking(false);
    if (accepted) keeper.accept(token.trim(), { remember });
  };

  const tryToken = async (): Promise<boolean> => {
    if (!isToken(token.trim())) {
      setError(NOT_ACCEPTED);
      return false;
    }
    try {
      await api.checkToken(token.trim());
      return true;
    } catch (failure) {
      setError(
        failure instanceof ApiError && failure.status === 401
          ? NOT_ACCEPTED
          : errorText(failure),
      );
      return false;
    }
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
        <h1 id="login-title">Drydock</h1>
        <p>This server asks for its access token. It printed the token, and an address that carries it, when it started.</p>
        <label className="field">
          <span className="field-label">Access token</span>
          <input
            type="password"
            autoComplete="current-password"
            value={token}
            required
            // The page has nothing else to do.
            // eslint-disable-next-line jsx-a11y/no-autofocus -- the only field of the page
            autoFocus
            data-testid="login-token"
            aria-describedby="login-error"
            onChange={(event) => {
              setToken(event.target.value);
            }}
          />
        </label>
        <label className="tick">
          <input
            type="checkbox"
            checked={remember}
            data-testid="login-remember"
            onChange={(event) => {
              setRemember(event.target.checked);
            }}
          />
          <span>Remember on this device</span>
        </label>
        <p id="login-error" className="form-error" role="alert" data-testid="login-error">
          {error}
        </p>
        <button type="submit" className="button primary wide" disabled={checking || token.trim() === ""} data-testid="login-submit">
          {checking ? "Checking" : "Sign in"}
        </button>
      </form>
    </main>
  );
}
