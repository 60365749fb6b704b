/** The second script of the hub page: plotly.js, which is loaded with the first figure of a search. */

export { default } from 'plotly.js-cartesian-dist-min';
