/** Light or dark: what was chosen on the Hub's pages (they share this browser's storage), else what the system says. */

const KEY = 'jupyterhub-bs-theme';
const DARK = '(prefers-color-scheme: dark)';

export type Theme = 'light' | 'dark';

function stored(): Theme | null {
  try {
    const found = window.localStorage.getItem(KEY);
    return found === 'light' || found === 'dark' ? found : null;
  } catch {
    return null; // storage may be forbidden
  }
}

export function themeNow(): Theme {
  return stored() ?? (window.matchMedia(DARK).matches ? 'dark' : 'light');
}

export function applyTheme(): void {
  document.documentElement.setAttribute('data-bs-theme', themeNow());
}

export function switchTheme(): Theme {
  const next = themeNow() === 'dark' ? 'light' : 'dark';
  try {
    window.localStorage.setItem(KEY, next);
  } catch {
    // Then it lasts as long as this page.
  }
  document.documentElement.setAttribute('data-bs-theme', next);
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
