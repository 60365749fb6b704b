/** Idempotency keys: a form sends the same one in `idempotency_key` however often it is submitted. */

import { useState } from 'react';

export function newKey(): string {
  // Not `randomUUID`, which pages that came over plain HTTP do not have.
  return Array.from(crypto.getRandomValues(new Uint8Array(16)), byte => byte.toString(16).padStart(2, '0')).join('');
}

/** The key of a form, the same as long as the form is shown. */
export function useSubmitKey(): string {
  return useState(newKey)[0];
}
