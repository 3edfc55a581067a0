/** Where a link to a shared conversation leads: the browser is let in, and goes on to it. */
import { useEffect, useState } from "react";
import { useDocumentTitle } from "../app/hooks";
import { useServices } from "../app/services";
import { Logo } from "../components/common/Logo";
import { BASE_PATH } from "../net/base-path";
import { ApiError, errorText } from "../net/http";
import { SharesApi } from "../net/shares";

const CUT = "Open the whole link that you were given: this address is a part of it.";
const OVER = "This link opens nothing any more: its time is over, or it was taken back. Ask for another one.";

export function SharedPage() {
  const { accountsRequest, shareToken } = useServices();
  const [problem, setProblem] = useState(shareToken === "" ? CUT : "");
  useDocumentTitle("A shared conversation");

  useEffect(() => {
    if (shareToken === "") return;
    new SharesApi(accountsRequest).open(shareToken).then(
      (conversation) => {
        window.location.replace(`${BASE_PATH}/conversations/${conversation}`);
      },
      (error: unknown) => {
        setProblem(error instanceof ApiError && error.status === 401 ? OVER : errorText(error));
      },
    );
  }, [accountsRequest, shareToken]);

  return (
    <main className="login">
      <div className="login-card">
        <Logo size={44} />
        <h1>A shared conversation</h1>
        {problem === "" ? (
          <p role="status">It is being opened.</p>
        ) : (
          <p className="form-error" role="alert" data-testid="shared-problem">
            {problem}
          </p>
        )}
      </div>
    </main>
  );
}
