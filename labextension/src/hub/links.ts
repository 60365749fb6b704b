/** Links within this page change the view without a reload; all others are left to the browser. */

import { placeOf, type Router } from './router';

export function interceptLinks(root: HTMLElement, router: Router): () => void {
  const onClick = (event: MouseEvent): void => {
    if (event.defaultPrevented || event.button || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey) return;
    const link = (event.target as Element | null)?.closest?.('a');
    if (!link || link.target || link.hasAttribute('download') || link.getAttribute('href')?.startsWith('#')) return;
    const url = new URL(link.href, window.location.href);
    if (url.origin !== window.location.origin || !url.pathname.startsWith(router.base)) return;
    const place = placeOf(url.pathname.slice(router.base.length), url.search);
    if (place.kind === 'nowhere') return;
    event.preventDefault();
    router.go(place);
  };
  root.addEventListener('click', onClick);
  return () => root.removeEventListener('click', onClick);
}
