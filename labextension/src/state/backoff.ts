/** How long to wait before the next attempt: exponential, with jitter and a limit. */

const FIRST_MS = 500;
const LIMIT_MS = 20_000;

export class Backoff {
  private failures = 0;

  constructor(private random: () => number = Math.random) {}

  /** The wait after one more failure in ms; `retryable`: whether trying again soon may help. */
  next(retryable = true): number {
    this.failures += 1;
    const wait = retryable ? Math.min(FIRST_MS * 2 ** (this.failures - 1), LIMIT_MS) : LIMIT_MS;
    return wait * (0.75 + this.random() / 2);
  }

  reset(): void {
    this.failures = 0;
  }
}
