/** What the user may set, and what the server runs on. */
import { useEffect, useState } from "react";
import { useDocumentTitle } from "../app/hooks";
import { loadSettings, useServices } from "../app/services";
import { About } from "../components/settings/About";
import { McpSignIns } from "../components/settings/McpSignIns";
import { Secrets } from "../components/settings/Secrets";
import { SettingsForm } from "../components/settings/SettingsForm";
import { DrawerButton } from "../components/shell/Shell";
import { Spinner } from "../components/common/Spinner";
import { errorText } from "../net/http";
import { useReadable } from "../state/store";

export function SettingsPage() {
  const services = useServices();
  const { api, settings } = services;
  const stored = useReadable(settings);
  const [error, setError] = useState("");
  const [models, setModels] = useState<readonly string[]>([]);
  useDocumentTitle("Settings");

  useEffect(() => {
    let current = true;
    // Another page may have changed both since this one was loaded.
    api
      .config()
      .then((value) => {
        services.config.set(value);
        return loadSettings(services);
      })
      .then(
        (value) => {
          if (current) settings.set(value);
        },
        (failure: unknown) => {
          if (current) setError(errorText(failure));
        },
      );
    api.models().then(
      (value) => {
        if (current) setModels(value);
      },
      () => undefined, // Suggestions only: any model name can be typed.
    );
    return () => {
      current = false;
    };
  }, [api, settings, services]);

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
          <About />
        </div>
      </div>
    </div>
  );
}
