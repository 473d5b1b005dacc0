// Light or dark: the system's choice until the reader makes one, which is remembered.

import { h } from "scope/dom";

const KEY = "undertow-theme";
const system = window.matchMedia("(prefers-color-scheme: dark)");
const watchers = [];

function remembered() {
  try {
    return localStorage.getItem(KEY);
  } catch {
    return null; // pages opened from a file may have no storage
  }
}

function chosen() {
  return remembered() ?? (system.matches ? "dark" : "light");
}

function apply(theme) {
  document.documentElement.dataset.theme = theme;
  for (const watcher of watchers) watcher(theme);
}

/** Calls back with "light" or "dark" after each change: canvases read their colours again. */
export function onTheme(watcher) {
  watchers.push(watcher);
}

/** The value of a colour variable such as "--accent", as it is now. */
export function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

/** A button that switches between light and dark. */
export function themeButton() {
  const button = h("button", { type: "button", id: "theme", onclick: toggle });
  const name = () => {
    const dark = document.documentElement.dataset.theme === "dark";
    button.textContent = dark ? "☀ Light" : "☾ Dark";
    button.setAttribute("aria-label", dark ? "Switch to light colours" : "Switch to dark colours");
  };
  onTheme(name);
  name();
  return button;
}

function toggle() {
  const theme = document.documentElement.dataset.theme === "dark" ? "light" : "dark";
  try {
    localStorage.setItem(KEY, theme);
  } catch {
    // the choice then lasts as long as the page
  }
  apply(theme);
}

apply(chosen());
system.addEventListener("change", () => apply(chosen()));
