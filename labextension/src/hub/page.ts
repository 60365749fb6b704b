/** The page's settings in its meta tags. */

export interface PageInfo {
  /** The service's prefix, `/services/detlab/`. */
  base: string;
  /** The Hub's prefix, `/hub/`. */
  hub: string;
  /** The token that every request has to carry. */
  xsrf: string;
  user: string;
  admin: boolean;
  version: string;
  /** Where the JSON Schema of an experiment's config is. */
  schema: string;
  /** Where plotly.js is; empty if it was not built. */
  plotly?: string;
  /** Most bytes of the code of one experiment. */
  bundleLimit: number;
}

/** The command line's own limit. */
const STANDARD_LIMIT = 95 * 1024 * 1024;

export function readPage(page: Document): PageInfo {
  const meta = (name: string): string => page.querySelector(`meta[name="detlab-${name}"]`)?.getAttribute('content') ?? '';
  return {
    base: meta('base') || '/services/detlab/',
    hub: meta('hub') || '/hub/',
    xsrf: meta('xsrf'),
    user: meta('user'),
    admin: meta('admin') === 'yes',
    version: meta('version'),
    schema: meta('schema'),
    plotly: meta('plotly'),
    bundleLimit: Number(meta('bundle-limit')) || STANDARD_LIMIT
  };
}

/** The token in the cookie: newer than the page's own after a login in another tab. */
export function cookieToken(page: Document): string {
  const found = page.cookie.split('; ').find(part => part.startsWith('_xsrf='));
  return found ? found.slice('_xsrf='.length).replace(/^"|"$/g, '') : '';
}
