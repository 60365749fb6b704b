// One ESM file for the notebook widget, next to the Python that shows it.
import { build } from 'esbuild';

await build({
  entryPoints: ['src/widget/index.ts'],
  outfile: '../kernel_magics/detlab_magics/static/widget.js',
  bundle: true,
  format: 'esm',
  target: 'es2022',
  minify: true,
  legalComments: 'none',
  banner: { js: '/* detlab notebook widget; includes uPlot (MIT, Leon Sorokin). Built from labextension/src. */' },
  loader: { '.css': 'text' },
  logLevel: 'warning'
});
