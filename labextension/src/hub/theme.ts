/** Light or dark: what was chosen here or on the Hub's pages (they share this browser's storage), else what the system says. */

const KEY = 'jupyterhub-bs-theme';
const DARK = '(prefers-color-scheme: dark)';

export type Theme = 'light' | 'dark';
/** `system`: as the system says, also when it changes. */
export type ThemeChoice = Theme | 'system';

export function chosenTheme(): ThemeChoice {
  try {
    const found = window.localStorage.getItem(KEY);
    return found === 'light' || found === 'dark' ? found : 'system';
  } catch {
    return 'system'; // storage may be forbidden
  }
}

export function themeNow(): Theme {
  const chosen = chosenTheme();
  return chosen !== 'system' ? chosen : window.matchMedia(DARK).matches ? 'dark' : 'light';
}

export function applyTheme(): void {
  document.documentElement.setAttribute('data-bs-theme', themeNow());
}

export function chooseTheme(choice: ThemeChoice): void {
  try {
    if (choice === 'system') window.localStorage.removeItem(KEY);
    else window.localStorage.setItem(KEY, choice);
  } catch {
    // Then it lasts as long as this page.
  }
  if (choice === 'system') applyTheme();
  else document.documentElement.setAttribute('data-bs-theme', choice);
}

export function switchTheme(): Theme {
  const next = themeNow() === 'dark' ? 'light' : 'dark';
  chooseTheme(next);
  return next;
}

/** Follow the system and the Hub's own switch in other tabs. */
export function followTheme(): void {
  applyTheme();
  window.matchMedia(DARK).addEventListener('change', applyTheme);
  window.addEventListener('storage', event => {
    if (event.key === KEY) applyTheme();
  });
}
