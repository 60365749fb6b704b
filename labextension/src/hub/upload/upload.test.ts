// @vitest-environment node
import { execFileSync } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join, resolve } from 'node:path';
import { deflateRawSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { byCodePoints, pack } from './bundle';
import { IgnoreRules } from './ignore';
import { check, joined, select } from './select';
import { ofFile, type Source } from './source';
import { openZip, withoutTop } from './zip';

const source = (path: string, text = path): Source => ofFile(new File([text], path), path);
const named = (path: string, size: number): Source => ({ ...source(path), size });
const alive = (): void => undefined;

/** Ask Python, with the command line's own code on its path. */
function python(code: string, input: string | Uint8Array, ...args: string[]): Buffer {
  const own = resolve('../.venv/bin/python');
  const env = { ...process.env, PYTHONUTF8: '1', PYTHONPATH: resolve('../harness') };
  return execFileSync(existsSync(own) ? own : 'python3', ['-c', code, ...args], { input, env, maxBuffer: 1e8 });
}

test('.detignore is read as the command line reads it', () => {
  const out = (text: string, path: string): boolean => new IgnoreRules(text).leavesOut(path);
  const cases: [string, string, boolean][] = [
    ['', 'train.py', false], ['', 'a/__pycache__/x.py', true], ['', 'a/b.pyc', true], ['', '.venv/bin/python', true], ['', '.git', true],
    ['!.venv/', '.venv/x', false], ['!.git\n!*/', '.git/config', true], ['!.detlab/', '.detlab/secrets/key', true],
    ['data', 'data/a', true], ['data', 'x/data', true], ['/data', 'x/data', false], ['data/', 'data', false], ['data/', 'data/a', true],
    ['*.bin\n!keep.bin', 'a/keep.bin', false], ['*.bin\n!keep.bin', 'a/other.bin', true], ['a/\n!a/b', 'a/b', true],
    ['a/**/z', 'a/z', true], ['a/**/z', 'a/b/c/z', true], ['**/tmp', 'x/y/tmp/f', true], ['a/**', 'a/b', true], ['a/*', 'a/b/c', true],
    ['a/*.txt', 'a/b/c.txt', false], ['f?o', 'fxo', true], ['f?o', 'f/o', false], ['[a-c].x', 'b.x', true], ['[!a-c].x', 'b.x', false],
    ['[[:digit:]]*', '7up', true], ['[]x]', ']', true], ['[open', '[open', false], ['\\#x', '#x', true], ['# x', '# x', false],
    ['a\\ ', 'a ', true], ['a ', 'a', true], ['x.y', 'xzy', false], ['$(x)+', '$(x)+', true], ['\uFEFFsecret', 'secret', true], ['a\r', 'a', true]
  ];
  for (const [text, path, ignored] of cases) expect(out(text, path), `${JSON.stringify(text)} ${path}`).toBe(ignored);
});

/** The same draws in every run. */
function draws(seed: number): (below: number) => number {
  let state = seed;
  return below => {
    state = (Math.imul(state, 1103515245) + 12345) & 0x7fffffff;
    return Math.floor((state / 0x80000000) * below);
  };
}

const JUDGE = `
import json, sys
from detlab.client.bundling.ignore import IgnoreRules
def left(text, paths):
    rules = IgnoreRules(text.split("\\n"))
    for path, folder in paths:
        parts = path.split("/")
        above = range(1, len(parts) + 1)
        yield any(rules.ignores("/".join(parts[:i]), directory=folder or i < len(parts)) for i in above)
print(json.dumps([list(left(*case)) for case in json.load(sys.stdin)]))
`;

test('.detignore says of drawn patterns and paths what the command line says', () => {
  const draw = draws(20);
  const pick = <T,>(from: readonly T[]): T => from[draw(from.length)]!;
  const many = <T,>(most: number, make: () => T): T[] => Array.from({ length: 1 + draw(most) }, make);
  const lines = [
    '*', '*.b', '!a', '/a', 'a/', '!a/b', '**/b', 'a/**', 'a/*/c', '[ab]', '?', '!*/', '#a', '', 'a/**/b', '**/a/', '[[:digit:]]x', '[!a]', '\\!a', 'a\\ ',
    '[^a]', 'A', '/**/', '!/a', '***', 'a**', '!!a', '/'
  ];
  // an open bracket, a range or an escape that ends early is no pattern; the two read it in ways of their own
  const whole = /^(\\.|\[[!^]?\]?[^[\]\\-]*\]|[^[\]\\])*$/u;
  const drawn = (): string => {
    const made = many(6, () => pick([...'abc*?/![]-^\\ #:A1.é😀'])).join('');
    return whole.test(made) && !/\[[!^]?\]|\\\//.test(made) ? made : drawn();
  };
  const pattern = (): string => (draw(2) ? pick(lines) : drawn());
  const name = (): string => pick(['a', 'b', 'c', 'A', '1', 'a.b', '-', ']', 'a ', '#a', '!a', '^', '[a]', 'ab', 'é', '1x', '.git', '.venv', 'x.pyc']);
  const cases = Array.from({ length: 1000 }, () => [
    many(4, pattern).join('\n'), many(5, () => [many(4, name).join('/'), draw(4) === 0] as const)
  ] as const);
  const told = JSON.parse(python(JUDGE, JSON.stringify(cases)).toString()) as boolean[][];
  expect(told.flat().filter(Boolean).length).toBeGreaterThan(300);
  cases.forEach(([text, paths], i) => {
    const rules = new IgnoreRules(text);
    paths.forEach(([path, folder], j) => expect(rules.leavesOut(path, folder), JSON.stringify([text, path, folder])).toBe(told[i]![j]));
  });
});

const BUNDLE = `
import sys, pathlib, tempfile
from detlab.client.bundling.bundle import build_bundle
from detlab.launch.archives import tree_digest
print(build_bundle(sys.argv[1]).digest)
with tempfile.NamedTemporaryFile() as file:
    file.write(sys.stdin.buffer.read())
    file.flush()
    print(tree_digest(pathlib.Path(file.name)))
`;

test('a bundle has the digest that the command line gives the same folder, and that the master finds in it', async () => {
  const draw = draws(7);
  const text = (length: number, letters: number): string => Array.from({ length }, () => String.fromCharCode(97 + draw(letters))).join('');
  const deep = `${'deep/'.repeat(40)}Ω — file.py`;
  const tree: Record<string, string> = {
    '.detignore': 'data/\n!.venv/\n*.tmp\r\n', 'train.py': 'print(1)\n'.repeat(3000), 'run.sh': '#!/bin/sh\nexit 0\n', empty: '', [deep]: 'ü',
    'data/large.bin': 'stays', 'x.tmp': 'stays', '.venv/kept': '1', '.git/config': 'stays', 'a/__pycache__/x.pyc': 'stays',
    'exactly/512': 'x'.repeat(512), ['x'.repeat(100)]: 'fits', ['y'.repeat(101)]: 'does not', 'é😀.py': '', 'éﬁ.py': '', 'a b/c\x01d': 'control',
    'noise.txt': text(500_000, 26), 'few.txt': text(200_000, 3), 'same.txt': '\0'.repeat(300_000),
    [`${'z'.repeat(90)}/${'é'.repeat(31)}`]: 'a length that counts its own digits'
  };
  const root = mkdtempSync(join(tmpdir(), 'det-bundle-'));
  try {
    for (const [path, content] of Object.entries(tree)) {
      mkdirSync(dirname(join(root, path)), { recursive: true });
      writeFileSync(join(root, path), content);
      if (content.startsWith('#!')) chmodSync(join(root, path), 0o755);
    }
    const { files } = await select(Object.entries(tree).map(([path, content]) => source(path, content)));
    const ours = await pack(files, alive);
    const said = python(BUNDLE, new Uint8Array(await ours.packed.arrayBuffer()), root).toString().trim().split('\n');
    expect(said).toEqual([ours.digest, ours.digest]);
    expect(ours.digest).toMatch(/^tree:[0-9a-f]{64}$/);
  } finally {
    rmSync(root, { recursive: true });
  }
});

test('paths are ordered as Python orders them', () => {
  const paths = ['b', 'a/b', 'a', '', 'a.b', 'ﬁ', '😀', 'é', 'ab', '😀a'];
  expect([...paths].sort(byCodePoints)).toEqual(['', 'a', 'a.b', 'a/b', 'ab', 'b', 'é', 'ﬁ', '😀', '😀a']);
});

test('packing stops when something else was chosen', async () => {
  const stop = (): void => { throw new Error('stopped'); };
  await expect(pack([source('a', 'x')], stop)).rejects.toThrow('stopped');
});

test('a download into the folder of an experiment is not sent as code, as the command line has it', async () => {
  const uuid = '0b0cf1e4-1f2d-4c1a-9a53-3f0ea2c6e0a1';
  const tree = [
    'train.py', 'best [1]/model.safetensors', '.best [1].detlab', `checkpoints/${uuid}/metadata.json`, `checkpoints/${uuid}/model.safetensors`,
    '.other.0a1b2c3d.partial/model.safetensors', 'own/model.safetensors'
  ].map(path => source(path));
  const paths = async (sources: Source[]): Promise<string[]> => (await select(sources)).files.map(file => file.path);
  expect(await paths(tree)).toEqual(['train.py', 'own/model.safetensors']);
  expect(await paths([...tree, source('.detignore', '!/best*/\n')])).toContain('best [1]/model.safetensors');
});

test('the selection is checked before the upload, with the largest files named', async () => {
  const chosen = await select([source('.detignore', 'data/\n'), source('train.py'), source('data/big'), source('x/secrets/user_token'), source('x/y')]);
  expect(chosen.files.map(file => file.path)).toEqual(['.detignore', 'train.py']);
  expect(chosen.left).toBe(3);
  check(chosen, 1000);
  expect(() => check({ files: [], left: 2, size: 0 }, 1000)).toThrow('all files are left out');
  expect(() => check({ files: [named('big', 900), named('a', 200)], left: 0, size: 1100 }, 1000)).toThrow('1.1 KiB exceed the limit of 1000 B');
  const one = named('f', 0);
  const many = Array.from({ length: 20_001 }, (_, i) => ({ ...one, path: `f${i}` }));
  expect(() => check({ files: many, left: 0, size: 0 }, 1000)).toThrow('20,001 files exceed the limit of 20,000');
  for (const path of ['a\\b', '../a', 'a//b', './a']) {
    expect(() => check({ files: [named(path, 1)], left: 0, size: 1 }, 1000), path).toThrow('is not a valid path on the nodes');
  }
  await expect(select([named('.detignore', 2_000_000)])).rejects.toThrow('too large for a list of patterns');
  expect(() => check({ files: [named('a', 1), named('a/b', 1)], left: 0, size: 2 }, 1000)).toThrow('both a file and a folder');
  expect(joined([source('a', 'old'), source('b')], [source('a', 'newer')]).map(one => [one.path, one.size])).toEqual([['b', 1], ['a', 5]]);
});

test('a bundle is a tar.gz that Python unpacks: long and foreign names, scripts, empty files', async () => {
  const long = `${'deep/'.repeat(40)}Ω — file.py`;
  const { packed } = await pack([source('train.py', 'print(1)'), source('run.sh', '#!/bin/sh\n'), source('empty', ''), source(long, 'ü'), source('x'.repeat(100))], alive);
  const read = [
    'import io, sys, tarfile', 'tar = tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read()), mode="r:gz")',
    'for m in tar: print(m.name, oct(m.mode), m.mtime, m.isreg(), tar.extractfile(m).read().decode()[:12].strip(), sep="|")'
  ].join('\n');
  const said = python(read, new Uint8Array(await packed.arrayBuffer())).toString();
  expect(said.trim().split('\n')).toEqual([
    `${long}|0o644|0|True|ü`, 'empty|0o644|0|True|', 'run.sh|0o755|0|True|#!/bin/sh', 'train.py|0o644|0|True|print(1)',
    `${'x'.repeat(100)}|0o644|0|True|${'x'.repeat(12)}`
  ]);
  await expect(pack([named('changed', 99)], alive)).rejects.toThrow('changed while it was read');
});

/** A .zip by hand: one entry each, stored or deflated. */
function zip(entries: { path: string; text: string; stored?: boolean; mode?: number; flags?: number; method?: number; size?: number }[]): Blob {
  const parts: Buffer[] = [];
  const directory: Buffer[] = [];
  let at = 0;
  for (const { path, text, stored, mode = 0o100644, flags = 0, method, size } of entries) {
    const name = Buffer.from(path);
    const body = stored ? Buffer.from(text) : deflateRawSync(Buffer.from(text));
    const sizes = [0, body.length, size ?? Buffer.byteLength(text)];
    const local = Buffer.alloc(30);
    local.writeUInt32LE(0x04034b50);
    local.writeUInt16LE(name.length, 26);
    local.writeUInt16LE(4, 28);
    const entry = Buffer.alloc(46);
    entry.writeUInt32LE(0x02014b50);
    entry.writeUInt8(3, 5);
    entry.writeUInt16LE(flags, 8);
    entry.writeUInt16LE(method ?? (stored ? 0 : 8), 10);
    sizes.forEach((n, i) => entry.writeUInt32LE(n, 16 + 4 * i));
    entry.writeUInt16LE(name.length, 28);
    entry.writeUInt16LE(mode, 40);
    entry.writeUInt32LE(at, 42);
    parts.push(local, name, Buffer.alloc(4), body);
    directory.push(entry, name);
    at += 34 + name.length + body.length;
  }
  const list = Buffer.concat(directory);
  const end = Buffer.alloc(22);
  end.writeUInt32LE(0x06054b50);
  end.writeUInt16LE(entries.length, 10);
  end.writeUInt32LE(list.length, 12);
  end.writeUInt32LE(at, 16);
  return new Blob([...parts, list, end].map(part => new Uint8Array(part)));
}

const texts = async (sources: Source[]): Promise<string[]> =>
  Promise.all(sources.map(async one => `${one.path}${one.executable ? '*' : ''}: ${new TextDecoder().decode(await one.bytes())}`));

test('a .zip is unpacked in the browser; the folder that it is of is left away', async () => {
  const file = zip([
    { path: 'code/', text: '' }, { path: 'code/train.py', text: 'print(1)\n'.repeat(500) }, { path: 'code/a/ü.sh', text: 'x', stored: true, mode: 0o100755 },
    { path: '__MACOSX/code/._train.py', text: 'junk' }
  ]);
  const { sources, top } = withoutTop(await openZip(file, 'code.zip'));
  expect(top).toBe('code');
  expect(await texts(sources)).toEqual([`train.py: ${'print(1)\n'.repeat(500)}`, 'a/ü.sh*: x']);
  const flat = withoutTop(await openZip(zip([{ path: 'a.py', text: '1' }, { path: 'd/b.py', text: '2' }]), 'x.zip'));
  expect([flat.top, ...flat.sources.map(one => one.path)]).toEqual([null, 'a.py', 'd/b.py']);
});

test('a .zip that is damaged, hostile or foreign is refused in words', async () => {
  const refused: [Blob, string][] = [
    [new Blob(['no zip at all']), 'is not a readable .zip'],
    [new Blob([]), 'is not a readable .zip'],
    [zip([{ path: '../../etc/passwd', text: 'x' }]), 'points outside of it'],
    [zip([{ path: '/etc/passwd', text: 'x' }]), 'points outside of it'],
    [zip([{ path: 'a\\..\\..\\b', text: 'x' }]), 'points outside of it'],
    [zip([{ path: 'link', text: '/etc', mode: 0o120777 }]), 'is a link'],
    [zip([{ path: 'a', text: 'x', flags: 1 }]), 'is encrypted'],
    [zip([{ path: 'a', text: 'x', method: 93 }]), 'uses a compression'],
    [zip([{ path: 'a', text: 'x' }, { path: 'a', text: 'y' }]), 'it contains a twice']
  ];
  for (const [blob, why] of refused) await expect(openZip(blob, 'x.zip'), why).rejects.toThrow(why);
  const bomb = await openZip(zip([{ path: 'bomb', text: 'x'.repeat(100_000), size: 10 }]), 'x.zip');
  await expect(bomb[0]!.bytes()).rejects.toThrow('bomb is damaged');
  const short = await openZip(zip([{ path: 'short', text: 'x', size: 10 }]), 'x.zip');
  await expect(short[0]!.bytes()).rejects.toThrow('short is damaged');
  const whole = zip([{ path: 'a', text: 'x'.repeat(100) }]);
  await expect(openZip(whole.slice(0, whole.size - 30), 'x.zip')).rejects.toThrow('is not a readable .zip');
  await expect(openZip(whole.slice(20), 'x.zip')).rejects.toThrow('is not a readable .zip');
});
