/** Light, dark, or as the system says. `public/theme.js` applies the same choice before the first paint. */
import { Cell } from "../state/store";

export type Theme = "system" | "light" | "dark";

const STORAGE_KEY = "drydock.theme";

function stored(): Theme {
  const value = window.localStorage.getItem(STORAGE_KEY);
  return value === "light" || value === "dark" ? value : "system";
}

export const theme = new Cell<Theme>(stored());

export function chooseTheme(choice: Theme): void {
  theme.set(choice);
  if (choice === "system") {
    window.localStorage.removeItem(STORAGE_KEY);
    delete document.documentElement.dataset.theme;
  } else {
    window.localStorage.setItem(STORAGE_KEY, choice);
    document.documentElement.dataset.theme = choice;
  }
}
