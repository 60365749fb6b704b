// Three front ends from one source, and the Hub's proxy: `node build.mjs [widget] [hub] [lab] [proxy]` (all by default);
// with --watch again and again, whenever a file in src/ or style/ changes.
//   widget  the notebook widget, one ESM file next to the Python that shows it
//   hub     the hub page, one script and one style sheet; and plotly.js, which is loaded with the first figure
//   lab     the prebuilt JupyterLab extension: bundled here, then federated by @jupyter/builder (no network)
//   proxy   configurable-http-proxy in one file, so that the wheel brings it and `det up` needs no npm
import { spawnSync } from 'node:child_process';
import { copyFileSync, cpSync, existsSync, readFileSync, readdirSync, rmSync, watch, writeFileSync } from 'node:fs';
import { dirname, join, resolve } from 'node:path';
import { fileURLToPath } from 'node:url';

import { build } from 'esbuild';

const here = dirname(fileURLToPath(import.meta.url));
process.chdir(here);
const watching = process.argv.includes('--watch');
const wanted = process.argv.slice(2).filter(name => name !== '--watch');
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
      entryPoints: { hub: 'src/hub/index.tsx', plotly: 'src/hub/plotly.ts' },
      outdir: '../hub_ext/detlab_hub/web/static',
      banner: { js: '/* detlab hub page; includes React, uPlot, plotly.js, ignore, unzipit, modern-tar and @noble/hashes (MIT) and yaml (ISC). Built from labextension/src. */' }
    }),

  lab: async () => {
    rmSync('lib', { recursive: true, force: true });
    await build({
      ...common,
      minify: false,
      minifySyntax: true,
      entryPoints: { index: 'src/lab/index.tsx' },
      outdir: 'lib',
      splitting: true,
      external: ['@jupyterlab/*', '@lumino/*', 'react', 'react/*', 'react-dom', 'react-dom/*']
    });
    // The builder takes style sheets as they are.
    await build({ ...common, entryPoints: { style: 'style/index.css' }, outdir: 'lib' });
    const builder = 'node_modules/@jupyter/builder/lib/build-labextension.js';
    const core = 'node_modules/@jupyterlab/core-meta/core.package.json';
    const run = spawnSync(process.execPath, [builder, '--core-package-file', core, here], { encoding: 'utf8' });
    if (run.status !== 0) throw new Error(`the JupyterLab extension was not built:\n${run.stdout}${run.stderr}`);
    copyFileSync('install.json', '../server_ext/detlab_server/labextension/install.json');
  },

  proxy: async () => {
    const source = 'node_modules/configurable-http-proxy';
    const target = '../hub_ext/detlab_hub/embedded/proxy';
    rmSync(target, { recursive: true, force: true });
    const { metafile } = await build({
      bundle: true,
      platform: 'node',
      format: 'cjs',
      target: 'node20',
      minify: true,
      legalComments: 'none',
      logLevel: 'warning',
      loader: { '': 'js' },
      entryPoints: { 'configurable-http-proxy': `${source}/bin/configurable-http-proxy` },
      outdir: `${target}/bin`,
      outExtension: { '.js': '.cjs' },
      define: { 'import.meta.url': '__source' },
      banner: { js: "const __source = require('node:url').pathToFileURL(__filename).href;" },
      metafile: true
    });
    // The two things that it reads at run time: its version, and the pages that it shows for errors.
    const { name, version, license } = JSON.parse(readFileSync(`${source}/package.json`, 'utf8'));
    writeFileSync(`${target}/package.json`, `${JSON.stringify({ name, version, license }, null, 2)}\n`);
    cpSync(`${source}/lib/error`, `${target}/bin/error`, { recursive: true });
    writeFileSync(`${target}/LICENSES.txt`, licencesOf(Object.keys(metafile.inputs)));
  }
};

/** The licence texts of the packages that bundled files come from. */
function licencesOf(files) {
  const folders = new Set(files.flatMap(file => file.match(/^.*node_modules\/(?:@[^/]+\/)?[^/]+/) ?? []));
  const texts = [...folders].sort().map(folder => {
    const { name, version, license } = JSON.parse(readFileSync(join(folder, 'package.json'), 'utf8'));
    const found = readdirSync(folder).find(file => /^licen[cs]e/i.test(file));
    const text = found ? readFileSync(join(folder, found), 'utf8').trim() : `Licence: ${license}`;
    return `${name} ${version}\n\n${text}\n`;
  });
  return texts.join(`\n${'-'.repeat(72)}\n\n`);
}

const unknown = wanted.filter(name => !(name in parts));
if (unknown.length) {
  console.error(`no such part: ${unknown.join(', ')}; there are ${Object.keys(parts).join(', ')}`);
  process.exit(2);
}

async function buildAll(names) {
  for (const name of names) await parts[name]();
  console.log(`built ${resolve(here)}: ${names.join(', ')}`);
}

const chosen = wanted.length ? wanted : Object.keys(parts);
if (watching) watchSources(chosen.filter(name => name !== 'proxy'));
else await buildAll(chosen);

/** Build after each change, once no file has changed for a moment; what does not compile waits for the next change. */
function watchSources(names) {
  let timer;
  let building = Promise.resolve();
  const soon = () => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      building = building.then(() => buildAll(names)).catch(error => console.error(error.message));
    }, 200);
  };
  for (const folder of ['src', 'style']) watch(folder, { recursive: true }, soon);
}
