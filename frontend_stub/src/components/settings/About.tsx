/** How the page looks, what the server is, and the way out. */
import { useServices } from "../../app/services";
import { chooseTheme, theme } from "../../app/theme";
import type { Theme } from "../../app/theme";
import { useReadable } from "../../state/store";
import { sandboxName } from "../shell/ServerFacts";

const THEMES: readonly (readonly [Theme, string])[] = [
  ["system", "As the system"],
  ["light", "Light"],
  ["dark", "Dark"],
];

function ThemeChoice() {
  const chosen = useReadable(theme);
  return (
    <fieldset className="choice">
      <legend className="field-label">Look</legend>
      <div className="choice-row">
        {THEMES.map(([value, label]) => (
          <label key={value} className="choice-option">
            <input type="radio" name="theme" value={value} checked={chosen === value} onChange={() => { chooseTheme(value); }} />
            <span>{label}</span>
          </label>
        ))}
      </div>
    </fieldset>
  );
}

export function About() {
  const { config, keeper } = useServices();
  const facts = useReadable(config)?.DRYDOCK;
  return (
    <section className="panel" aria-labelledby="settings-about" data-testid="about">
      <h2 id="settings-about">This page and this server</h2>
      <ThemeChoice />
      {facts !== undefined && (
        <dl className="facts about-facts">
          <div className="fact">
            <dt>Drydock</dt>
            <dd>{facts.version}</dd>
          </div>
          <div className="fact">
            <dt>Sandbox</dt>
            <dd>
              {sandboxName(facts.sandbox.provider)}
              {facts.sandbox.reason !== "" && <span className="dim"> {facts.sandbox.reason}</span>}
            </dd>
          </div>
          <div className="fact">
            <dt>Server's model</dt>
            <dd>{facts.demo ? `${facts.model} (demo)` : facts.model}</dd>
          </div>
        </dl>
      )}
      {keeper.token !== null && (
        <button type="button" className="button" data-testid="sign-out" onClick={() => { keeper.forget(); }}>
          Sign out
        </button>
      )}
    </section>
  );
}
