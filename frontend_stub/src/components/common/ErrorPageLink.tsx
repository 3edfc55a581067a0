import { BASE_PATH } from "../../net/base-path";
import { errorCode } from "../../protocol/status";

/** Behind a sentence, the way to the server's page about what a reason or an id names; nothing where there is none. */
export function ErrorPageLink({ reason }: { readonly reason: string }) {
  const code = errorCode(reason);
  if (code === "") return null;
  return (
    <>
      {" "}
      <a href={`${BASE_PATH}/errors/${encodeURIComponent(code)}`} target="_blank" rel="noreferrer" data-testid="error-page">
        What this means
      </a>
    </>
  );
}
