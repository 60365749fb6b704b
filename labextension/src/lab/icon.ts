/** The sign of detlab: curves that end at different heights, the best one on top. */

import { LabIcon } from '@jupyterlab/ui-components';

const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24" fill="none">
  <path class="jp-icon3" stroke="#616161" stroke-width="2" stroke-linecap="round" stroke-linejoin="round" d="M4 4v16h16M8 16c4-1 3-9 11-10"/>
  <path class="jp-icon3" stroke="#616161" stroke-width="1.5" stroke-linecap="round" d="M9 17c3 0 4-4 7-4"/></svg>`;

export const detlabIcon = new LabIcon({ name: 'detlab:icon', svgstr });
