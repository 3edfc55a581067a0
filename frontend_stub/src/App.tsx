import { lazy, Suspense, useEffect } from "react";
import { Route, Router, Switch } from "wouter";
import { loadServerFacts, ServicesContext } from "./app/services";
import type { Services } from "./app/services";
import { followViewport } from "./app/viewport";
import { Shell } from "./components/shell/Shell";
import { ConversationPage } from "./pages/ConversationPage";
import { HomePage } from "./pages/HomePage";
import { LoginPage } from "./pages/LoginPage";
import { NotFoundPage } from "./pages/NotFoundPage";
import { SettingsPage } from "./pages/SettingsPage";
import { BASE_PATH } from "./net/base-path";
import { useReadable } from "./state/store";

// Most servers have one user: what is for accounts is loaded where it is needed.
const AccountLogin = lazy(async () => ({ default: (await import("./pages/AccountPages")).AccountLogin }));
const WelcomePage = lazy(async () => ({ default: (await import("./pages/AccountPages")).WelcomePage }));

const SharedPage = lazy(async () => ({ default: (await import("./pages/SharedPage")).SharedPage }));

export function App({ services }: { readonly services: Services }) {
  return (
    <ServicesContext.Provider value={services}>
      <Router base={BASE_PATH}>
        <Suspense>
          <Switch>
            <Route path="/welcome" component={WelcomePage} />
            <Route path="/shared" component={SharedPage} />
            <Route>
              <Inside services={services} />
            </Route>
          </Switch>
        </Suspense>
      </Router>
    </ServicesContext.Provider>
  );
}

/** Everything for who is let in, or the door. */
function Inside({ services }: { readonly services: Services }) {
  const loginNeeded = useReadable(services.keeper.loginNeeded);
  const withAccounts = useReadable(services.keeper.withAccounts);
  useEffect(() => {
    // A refused socket does not say by what one signs in; a refused request does.
    if (loginNeeded && !withAccounts) services.api.config().catch(() => undefined);
  }, [loginNeeded, withAccounts, services]);
  if (!loginNeeded) return <Pages services={services} />;
  return withAccounts ? <AccountLogin /> : <LoginPage />;
}

function Pages({ services }: { readonly services: Services }) {
  useEffect(() => followViewport(), []);
  useEffect(() => {
    void loadServerFacts(services);
    return services.conversations.watch();
  }, [services]);

  return (
    <Shell>
      <Switch>
        <Route path="/" component={HomePage} />
        <Route path="/settings" component={SettingsPage} />
        <Route path="/conversations/:id">{({ id }) => <ConversationPage key={id} id={id} />}</Route>
        <Route>
          <NotFoundPage />
        </Route>
      </Switch>
    </Shell>
  );
}
