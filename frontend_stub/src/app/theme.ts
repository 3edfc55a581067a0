/** Light, dark, or as the system says. `index.html` applies the same choice before the first paint. */
import { deviceShelf } from "../net/storage";
import { Cell } from "../state/store";

export type Theme = "system" | "light" | "dark";

const STORAGE_KEY = "drydock.theme";

function stored(): Theme {
  const value = deviceShelf.read(STORAGE_KEY);
  return value === "light" || value === "dark" ? value : "system";
}

export const theme = new Cell<Theme>(stored());

export function chooseTheme(choice: Theme): void {
  theme.set(choice);
  if (choice === "system") {
    deviceShelf.remove(STORAGE_KEY);
    delete document.documentElement.dataset.theme;
  } else {
    deviceShelf.write(STORAGE_KEY, choice);
    document.documentElement.dataset.theme = choice;
  }
}
