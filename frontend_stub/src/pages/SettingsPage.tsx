/** What the user may set, and what the server runs on. */
import { lazy, Suspense, useCallback, useEffect, useState } from "react";
import { useDocumentTitle, useLoading } from "../app/hooks";
import { loadSettings, useServices } from "../app/services";
import { About } from "../components/settings/About";
import { DockerHosts } from "../components/settings/DockerHosts";
import { McpSignIns } from "../components/settings/McpSignIns";
import { Secrets } from "../components/settings/Secrets";
import { SettingsForm } from "../components/settings/SettingsForm";
import { DrawerButton } from "../components/shell/Shell";
import { Spinner } from "../components/common/Spinner";
import { useReadable } from "../state/store";

const Account = lazy(() => import("../components/settings/Account"));

export function SettingsPage() {
  const services = useServices();
  const { api } = services;
  const stored = useReadable(services.settings);
  const account = useReadable(services.config)?.DRYDOCK?.account ?? null;
  const [models, setModels] = useState<readonly string[]>([]);
  useDocumentTitle("Settings");

  // Another page may have changed both since this one was loaded.
  const load = useCallback(async () => {
    services.config.set(await services.api.config());
    services.settings.set(await loadSettings(services));
  }, [services]);
  const error = useLoading(load);

  useEffect(() => {
    let current = true;
    api.models().then(
      (value) => {
        if (current) setModels(value);
      },
      () => undefined, // Suggestions only: any model name can be typed.
    );
    return () => {
      current = false;
    };
  }, [api]);

  return (
    <div className="settings-page" data-testid="settings-page">
      <header className="topbar">
        <DrawerButton />
        <h1 className="topbar-title">Settings</h1>
      </header>
      <div className="settings-scroll">
        <div className="settings-body">
          {stored === undefined && error === "" && (
            <p className="list-note">
              <Spinner /> Loading
            </p>
          )}
          {stored === undefined && error !== "" && (
            <p className="form-error" role="alert">
              The settings could not be loaded. {error}
            </p>
          )}
          {stored !== undefined && <SettingsForm stored={stored} models={models} />}
          <McpSignIns />
          <Secrets />
          <DockerHosts />
          {account !== null && (
            <Suspense>
              <Account name={account.name} role={account.role} />
            </Suspense>
          )}
          <About />
        </div>
      </div>
    </div>
  );
}
