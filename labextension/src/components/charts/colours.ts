/** Colours of curves. */

export const COLORS = ['#4c78a8', '#54a24b', '#b279a2', '#2a9d8f', '#9d755d', '#c9a227', '#6a5acd', '#d16ba5'];

/** Up to so many curves have a colour and a label each: more could not be told apart. */
export const FEW = COLORS.length;

/** The value of a CSS variable at an element, or the fallback where it is not set. */
export function cssColor(el: HTMLElement, name: string, fallback: string): string {
  return getComputedStyle(el).getPropertyValue(name).trim() || fallback;
}
