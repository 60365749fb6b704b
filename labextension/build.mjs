// Three front ends from one source: `node build.mjs [widget] [hub] [lab]` (all by default).
//   widget  the notebook widget, one ESM file next to the Python that shows it
//   hub     the hub page, one script and one style sheet
//   lab     the prebuilt JupyterLab extension: bundled here, then federated by @jupyter/builder (no network)
import { spawnSync } from 'node:child_process';
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { dirname, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);
const wanted = process.argv.slice(2);
const common = {
  bundle: true,
  format: 'esm',
  target: 'es2022',
  jsx: 'automatic',
  minify: true,
  legalComments: 'none',
  define: { 'process.env.NODE_ENV': '"production"' },
  logLevel: 'warning'
};

const parts = {
  widget: () =>
    build({
      ...common,
      entryPoints: ['src/widget/index.tsx'],
      outfile: '../kernel_magics/detlab_magics/static/widget.js',
      banner: { js: '/* detlab notebook widget; includes React (MIT) and uPlot (MIT, Leon Sorokin). Built from labextension/src. */' },
      loader: { '.css': 'text' }
    }),

  hub: () =>
    existsSync('src/hub/index.tsx') &&
    build({
      ...common,
      entryPoints: { hub: 'src/hub/index.tsx' },
      outdir: '../hub_ext/detlab_hub/web/static',
      banner: { js: '/* detlab hub page; includes React, uPlot, ignore, unzipit and @noble/hashes (MIT), pako (MIT, zlib) and yaml (ISC). Built from labextension/src. */' }
    }),

  lab: async () => {
    rmSync('lib', { recursive: true, force: true });
    await build({
      ...common,
      minify: false,
      entryPoints: { index: 'src/lab/index.tsx' },
      outdir: 'lib',
      splitting: true,
      external: ['@jupyterlab/*', '@lumino/*', 'react', 'react/*', 'react-dom', 'react-dom/*']
    });
    const builder = 'node_modules/@jupyter/builder/lib/build-labextension.js';
    const core = 'node_modules/@jupyterlab/core-meta/core.package.json';
    const run = spawnSync(process.execPath, [builder, '--core-package-file', core, here], { encoding: 'utf8' });
    if (run.status !== 0) throw new Error(`the JupyterLab extension was not built:\n${run.stdout}${run.stderr}`);
    copyFileSync('install.json', '../server_ext/detlab_server/labextension/install.json');
  }
};

for (const [name, make] of Object.entries(parts)) {
  if (wanted.length === 0 || wanted.includes(name)) await make();
}
const unknown = wanted.filter(name => !(name in parts));
if (unknown.length) {
  console.error(`no such part: ${unknown.join(', ')}; there are ${Object.keys(parts).join(', ')}`);
  process.exit(2);
}
console.log(`built ${resolve(here)}: ${(wanted.length ? wanted : Object.keys(parts)).join(', ')}`);
