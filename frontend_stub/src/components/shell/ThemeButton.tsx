/** Switches between the system's look, light and dark. */
import { chooseTheme, theme } from "../../app/theme";
import type { Theme } from "../../app/theme";
import { useReadable } from "../../state/store";
import { MoonIcon, ScreenIcon, SunIcon } from "../common/icons";

const NEXT: Readonly<Record<Theme, Theme>> = { system: "light", light: "dark", dark: "system" };
const NAMES: Readonly<Record<Theme, string>> = { system: "as the system", light: "light", dark: "dark" };

export function ThemeButton() {
  const chosen = useReadable(theme);
  const label = `Look: ${NAMES[chosen]}. Change to ${NAMES[NEXT[chosen]]}`;
  return (
    <button type="button" className="icon-button" aria-label={label} title={label} data-testid="theme-toggle" onClick={() => { chooseTheme(NEXT[chosen]); }}>
      {chosen === "system" ? <ScreenIcon /> : chosen === "light" ? <SunIcon /> : <MoonIcon />}
    </button>
  );
}
