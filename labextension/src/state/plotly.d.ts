declare module 'plotly.js-cartesian-dist-min' {
  const plotly: import('./context').Plotly;
  export default plotly;
}
