/** Contain the crash of a view. */

import { Component, type ReactNode } from 'react';

export class ErrorBoundary extends Component<{ children: ReactNode }, { error: Error | null }> {
  override state: { error: Error | null } = { error: null };

  static getDerivedStateFromError(error: unknown): { error: Error } {
    return { error: error instanceof Error ? error : new Error(String(error)) };
  }

  override render(): ReactNode {
    const { error } = this.state;
    if (!error) return this.props.children;
    return (
      <div className="det-banner" data-tone="bad" role="alert">
        <div>
          <strong>This view crashed.</strong> {error.message}
          <div className="det-soft">The rest of the page still works. If this happens again, report this message and what you did.</div>
        </div>
        <button type="button" className="det-button" onClick={() => this.setState({ error: null })}>Try again</button>
      </div>
    );
  }
}
