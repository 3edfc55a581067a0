import { BASE_PATH } from "../../net/base-path";
import { errorCode } from "../../protocol/status";

/** The way to the server's page about what a reason, an id or a code names; nothing where there is none. */
export function ErrorPageLink({ reason }: { readonly reason: string }) {
  const code = errorCode(reason);
  if (code === "") return null;
  return (
    <a href={`${BASE_PATH}/errors/${encodeURIComponent(code)}`} target="_blank" rel="noreferrer" data-testid="error-page">
      What this means
    </a>
  );
}
