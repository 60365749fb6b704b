/** The sign of detlab: curves that end at different heights, the best one on top. */

import { LabIcon } from '@jupyterlab/ui-components';

const svgstr = `<svg xmlns="http://www.w3.org/2000/svg" width="16" viewBox="0 0 24 24">
  <g class="jp-icon3" fill="none" stroke="#616161" stroke-width="2" stroke-linecap="round">
    <path d="M4 4v16h16"/><path d="M7 16c3-1 3-8 6-9s4 0 7-1"/><path d="M8 18c3-1 4-5 6-5" stroke-width="1.5"/>
  </g></svg>`;

export const detlabIcon = new LabIcon({ name: 'detlab:icon', svgstr });
