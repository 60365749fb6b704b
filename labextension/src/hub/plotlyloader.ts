/** Loads plotly.js, whose style sheets this page's content policy does not allow. */

import type { Plotly } from '../state/context';

/** Ids of the sheets that plotly.js adds unless they are there: its own, and that of the maps that nobody here draws. */
const SHEETS = ['plotly.js-style-global', '9f215cf04c5486422605d13261cb87401f4e7763b6296af81e98efbc0130da53'];

/** Load it from its address; the rules that figures need are in charts.css. */
export async function loadPlotly(address: string): Promise<Plotly> {
  for (const id of SHEETS) {
    if (document.getElementById(id)) continue;
    const there = document.createElement('template');
    there.id = id;
    there.className = 'no-inline-styles';
    document.head.append(there);
  }
  return ((await import(address)) as { default: Plotly }).default;
}
