// Builds the harness page (src/harness) into a folder: `node harness.mjs FOLDER`. Served by any static server, it shows
// one view with made-up data; tests/e2e/front/test_faces_views.py, bench/faces.py and docs/screenshots.py use it.
import { writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

const folder = resolve(process.argv[2] ?? '');
if (!process.argv[2]) {
  console.error('node harness.mjs FOLDER');
  process.exit(2);
}
const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);
await build({
  entryPoints: { harness: 'src/harness/index.tsx', plotly: 'src/hub/plotly.ts' },
  outdir: folder,
  absWorkingDir: here,
  bundle: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  minify: true,
  legalComments: 'none',
  define: { 'process.env.NODE_ENV': '"production"' },
  logLevel: 'warning'
});
writeFileSync(join(folder, 'index.html'), `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>detlab views</title><link rel="icon" href="data:,"><link rel="stylesheet" href="harness.css">
<script type="module" src="harness.js"></script></head><body><div id="root"></div></body></html>
`);
