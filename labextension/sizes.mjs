// Bytes (gzip) of our own code in each entry, without React, uPlot, yaml, what packs and unpacks files, and what the host brings: `node sizes.mjs`.
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { fileURLToPath } from 'node:url';
import { gzipSync } from 'node:zlib';

import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);
const entries = { widget: 'src/widget/index.tsx', hub: 'src/hub/index.tsx', lab: 'src/lab/index.tsx' };
const others = ['@jupyterlab/*', '@lumino/*', 'react', 'react/*', 'react-dom', 'react-dom/*', 'uplot', 'plotly.js-cartesian-dist-min', 'yaml', 'modern-tar', 'unzipit', 'ignore', '@noble/hashes/*'];
for (const [name, entry] of Object.entries(entries)) {
  if (!existsSync(entry)) continue;
  const made = await build({
    entryPoints: [entry],
    absWorkingDir: here,
    bundle: true,
    write: false,
    outdir: 'out',
    format: 'esm',
    target: 'es2022',
    jsx: 'automatic',
    minify: true,
    legalComments: 'none',
    loader: name === 'widget' ? { '.css': 'text' } : {},
    external: others,
    logLevel: 'silent'
  });
  const scripts = made.outputFiles.filter(file => file.path.endsWith('.js'));
  console.log(name, scripts.reduce((sum, file) => sum + gzipSync(file.contents).length, 0));
}
