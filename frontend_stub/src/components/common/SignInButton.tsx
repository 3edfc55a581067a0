/** Begins a sign-in with an MCP server: leads to its page, which comes back to where it was begun. */
import { useState } from "react";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";

interface SignInButtonProps {
  readonly id: string;
  /** Told in the button's name: there may be several. */
  readonly server: string;
  /** The conversation to come back to; the settings where it is left out. */
  readonly conversationId?: string | undefined;
}

export function SignInButton({ id, server, conversationId }: SignInButtonProps) {
  const { api } = useServices();
  const [leaving, setLeaving] = useState(false);
  const [failure, setFailure] = useState("");

  const begin = async () => {
    setLeaving(true);
    setFailure("");
    try {
      const url = new URL(await api.beginMcpSignIn(id, conversationId ?? null));
      if (url.protocol !== "https:" && url.protocol !== "http:") throw new Error(`The address begins with ${url.protocol}, which is not opened.`);
      window.location.assign(url.href);
    } catch (error) {
      setFailure(errorText(error));
      setLeaving(false);
    }
  };

  return (
    <>
      <button
        type="button"
        className="button"
        disabled={leaving}
        aria-label={server === "" ? undefined : `Sign in to ${server}`}
        data-testid="mcp-sign-in"
        onClick={() => void begin()}
      >
        {leaving ? "Opening" : "Sign in"}
      </button>
      {failure !== "" && (
        <span className="form-error" role="alert" data-testid="mcp-sign-in-error">
          {failure}
        </span>
      )}
    </>
  );
}
