// What tsc cannot say: components and state are shared with the hub page, so they know nothing of JupyterLab; and
// text of users reaches the page as text only.
import { readFileSync, readdirSync } from 'node:fs';
import { join } from 'node:path';

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
process.exit(found ? 1 : 0);
