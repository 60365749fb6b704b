// What tsc cannot say: components and state are shared with the hub page, so they know nothing of JupyterLab; and
// text of users reaches the page as text only. No import circle, also none of types; no folder of more than 20 modules.
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { dirname, join, normalize } from 'node:path';

const SHARED = ['src/components', 'src/state'];
const RULES = [
  [/from\s+['"](@jupyterlab|@lumino|@jupyter)\//, 'components and state import neither @jupyterlab nor @lumino', SHARED],
  [/from\s+['"][./]+\/(lab|hub|widget)\//, 'components and state know no host', SHARED],
  [/dangerouslySetInnerHTML|\.innerHTML\s*=|insertAdjacentHTML|document\.write\(/, 'text of users is never HTML', ['src']],
  [/\beval\(|new Function\(/, 'no code from text', ['src']],
  [/setInterval\(/, 'no polling: listen to the stream', SHARED]
];

function* sources(folder) {
  for (const entry of readdirSync(folder, { withFileTypes: true })) {
    const path = join(folder, entry.name);
    if (entry.isDirectory()) yield* sources(path);
    else if (/\.tsx?$/.test(entry.name) && !/\.test\.tsx?$/.test(entry.name)) yield path;
  }
}

let found = 0;
for (const [pattern, why, folders] of RULES) {
  for (const folder of folders) {
    for (const path of sources(folder)) {
      readFileSync(path, 'utf8').split('\n').forEach((line, i) => {
        if (!pattern.test(line)) return;
        found += 1;
        console.error(`${path}:${i + 1}: ${why}\n    ${line.trim()}`);
      });
    }
  }
}

/** The module that a relative import means. */
function resolve(from, name) {
  const path = normalize(join(dirname(from), name));
  return [`${path}.ts`, `${path}.tsx`, `${path}/index.ts`, `${path}/index.tsx`].find(existsSync);
}

const MOST_MODULES = 20;
const IMPORT = /(?:^|\n)\s*(?:import|export)\b[^;]*?from\s*['"](\.[^'"]*)['"]|\bimport\(['"](\.[^'"]*)['"]\)/g;
const ROOM = /^src\/(components\/)?[^/]+/;
const imports = new Map();
const folders = new Map();
for (const path of sources('src')) {
  folders.set(dirname(path), (folders.get(dirname(path)) ?? 0) + 1);
  const names = [...readFileSync(path, 'utf8').matchAll(IMPORT)].map(match => match[1] ?? match[2]);
  imports.set(path, names.map(name => resolve(path, name)).filter(Boolean));
}
for (const [folder, count] of folders) {
  if (count <= MOST_MODULES) continue;
  found += 1;
  console.error(`${folder}: ${count} modules; a folder holds at most ${MOST_MODULES}: split it by what belongs together`);
}

/** Report the circles of a graph, each once. */
function circles(graph, what) {
  const done = new Set();
  const visit = (node, way) => {
    if (way.includes(node)) {
      found += 1;
      console.error(`import circle of ${what}: ${[...way.slice(way.indexOf(node)), node].join(' -> ')}`);
    } else if (!done.has(node)) {
      for (const next of graph.get(node) ?? []) visit(next, [...way, node]);
      done.add(node);
    }
  };
  for (const node of graph.keys()) visit(node, []);
}

circles(imports, 'modules');
const rooms = new Map();
for (const [path, others] of imports) {
  const [room] = ROOM.exec(path);
  const next = others.map(other => ROOM.exec(other)[0]).filter(other => other !== room);
  rooms.set(room, new Set([...(rooms.get(room) ?? []), ...next]));
}
circles(rooms, 'folders');
process.exit(found ? 1 : 0);
