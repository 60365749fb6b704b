/** What the user was told: the bell with its list. */

export { AlertBell } from './AlertBell';
