import { Link } from "wouter";
import { useDocumentTitle } from "../app/hooks";
import { DrawerButton } from "../components/shell/Shell";

export function NotFoundPage({ what = "page" }: { readonly what?: "page" | "conversation" }) {
  useDocumentTitle("Not found");
  return (
    <div className="home">
      <header className="topbar bare">
        <DrawerButton />
      </header>
      <div className="home-body" data-testid="not-found">
        <h1 className="home-title">{what === "page" ? "There is nothing here" : "This conversation does not exist"}</h1>
        <p className="demo-note">
          {what === "page" ? "The address leads nowhere. " : "It may have been deleted. "}
          <Link href="/">Begin a new conversation</Link>
        </p>
      </div>
    </div>
  );
}
