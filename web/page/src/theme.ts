// Light or dark: as the system says, until someone chooses.
import { viewChanged } from "./draw/viewport.ts";

export function toggleTheme(): void {
  const root = document.documentElement;
  const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  root.dataset.theme = dark ? "light" : "dark";
  viewChanged();
}
