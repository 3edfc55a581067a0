/** The MCP servers that one signs in to: where one has, where it is wanted, and the way in and out. */
import { useCallback, useState } from "react";
import { useLoading } from "../../app/hooks";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";
import type { McpSignIn } from "../../protocol/rest";
import { SignInButton } from "../common/SignInButton";

const STATES: Readonly<Record<McpSignIn["state"], string>> = {
  signed_in: "Signed in",
  wanted: "Wants you to sign in",
  unknown: "",
};

export function McpSignIns() {
  const { api, toasts } = useServices();
  const [signIns, setSignIns] = useState<readonly McpSignIn[]>([]);
  const [failure, setFailure] = useState("");

  const load = useCallback(async () => {
    setSignIns(await api.mcpSignIns());
  }, [api]);
  const problem = useLoading(load);

  const signOut = async (one: McpSignIn) => {
    setFailure("");
    try {
      const problem = await api.endMcpSignIn(one.id);
      setSignIns(await api.mcpSignIns());
      if (problem === "") toasts.done(`You are signed out of ${one.server}.`);
      else setFailure(`You are signed out here, but not at ${one.server}: ${problem}.`);
    } catch (error) {
      setFailure(errorText(error));
    }
  };

  const told = failure || problem;
  if (signIns.length === 0 && told === "") return null;
  return (
    <section className="panel" aria-labelledby="settings-mcp" data-testid="mcp-sign-ins">
      <h2 id="settings-mcp">MCP servers</h2>
      <p className="panel-note">
        Servers of tools that ask you to sign in. The agent uses them in your name until you sign out; it is never shown
        how.
      </p>
      <ul className="secret-list">
        {signIns.map((one) => (
          <li key={one.id} className="secret" data-testid="mcp-server" data-state={one.state}>
            <span className="secret-text">
              <code className="secret-name">{one.server}</code>
              <span className="dim">{one.scope === null ? STATES[one.state] : `${STATES[one.state]} (${one.scope})`}</span>
            </span>
            {one.state === "signed_in" ? (
              <button
                type="button"
                className="link-button"
                aria-label={`Sign out of ${one.server}`}
                data-testid="mcp-sign-out"
                onClick={() => void signOut(one)}
              >
                Sign out
              </button>
            ) : (
              <SignInButton id={one.id} server={one.server} />
            )}
          </li>
        ))}
      </ul>
      {told !== "" && (
        <p className="form-error" role="alert" data-testid="mcp-sign-ins-error">
          {told}
        </p>
      )}
    </section>
  );
}
