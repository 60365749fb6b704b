/**
 * The address under which a server of the Hub is opened: the Hub's own, which sends a browser on.
 *
 * A server answers a moment before the Hub has made its route. In that moment `/user/ada/shell-1/…` would lead to the
 * default server of ada, which knows no such page; `/hub/user/ada/shell-1/…` waits on the Hub's page of pending servers.
 */
export function viaHub(path: string): string {
  return path.replace(/\/user\//, '/hub/user/');
}
