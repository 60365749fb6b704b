// @vitest-environment node
import { createHash } from 'node:crypto';
import { execFileSync } from 'node:child_process';
import { deflateRawSync } from 'node:zlib';

import { expect, test } from 'vitest';

import { IgnoreRules } from './ignore';
import { check, joined, select } from './select';
import { sha256 } from './sha256';
import { ofFile, type Source } from './source';
import { pack } from './tar';
import { openZip, withoutTop } from './zip';

const source = (path: string, text = path): Source => ofFile(new File([text], path), path);
const named = (path: string, size: number): Source => ({ ...source(path), size });
const alive = (): void => undefined;

test('SHA-256 is that of everybody else, at every length about a block and beyond one slice', async () => {
  for (const length of [0, 1, 55, 56, 63, 64, 65, 119, 120, 1000, 4 * 1024 * 1024 + 77]) {
    const data = new Uint8Array(length).map((_, i) => (i * 31) % 251);
    expect(await sha256(data), String(length)).toBe(createHash('sha256').update(data).digest('hex'));
  }
});

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

test('what was chosen is judged before it travels, with the largest files named', async () => {
  const chosen = await select([source('.detignore', 'data/\n'), source('train.py'), source('data/big'), source('x/secrets/user_token'), source('x/y')]);
  expect(chosen.files.map(file => file.path)).toEqual(['.detignore', 'train.py']);
  expect(chosen.left).toBe(3);
  check(chosen, 1000);
  expect(() => check({ files: [], left: 2, size: 0 }, 1000)).toThrow('nothing of it travels');
  expect(() => check({ files: [named('big', 900), named('a', 200)], left: 0, size: 1100 }, 1000)).toThrow('1.1 KiB are more than 1000 B');
  const one = named('f', 0);
  const many = Array.from({ length: 20_001 }, (_, i) => ({ ...one, path: `f${i}` }));
  expect(() => check({ files: many, left: 0, size: 0 }, 1000)).toThrow('20,001 files are more than 20,000');
  expect(() => check({ files: [named('a', 1), named('a/b', 1)], left: 0, size: 2 }, 1000)).toThrow('a file and a folder at once');
  expect(joined([source('a', 'old'), source('b')], [source('a', 'newer')]).map(one => [one.path, one.size])).toEqual([['b', 1], ['a', 5]]);
});

test('a bundle is a tar.gz that Python unpacks: long and foreign names, scripts, empty files', async () => {
  const long = `${'deep/'.repeat(40)}Ω — file.py`;
  const bytes = await pack([source('train.py', 'print(1)'), source('run.sh', '#!/bin/sh\n'), source('empty', ''), source(long, 'ü'), source('x'.repeat(100))], alive);
  const read = [
    'import io, sys, tarfile', 'tar = tarfile.open(fileobj=io.BytesIO(sys.stdin.buffer.read()), mode="r:gz")',
    'for m in tar: print(m.name, oct(m.mode), m.mtime, m.isreg(), tar.extractfile(m).read().decode()[:12].strip(), sep="|")'
  ].join('\n');
  const said = execFileSync('python3', ['-c', read], { input: bytes, encoding: 'utf8', env: { ...process.env, PYTHONUTF8: '1' } });
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
    [new Blob(['no zip at all']), 'it has no directory'],
    [zip([{ path: '../../etc/passwd', text: 'x' }]), 'leads out of it'],
    [zip([{ path: '/etc/passwd', text: 'x' }]), 'leads out of it'],
    [zip([{ path: 'a\\..\\..\\b', text: 'x' }]), 'leads out of it'],
    [zip([{ path: 'link', text: '/etc', mode: 0o120777 }]), 'is a link'],
    [zip([{ path: 'a', text: 'x', flags: 1 }]), 'is encrypted'],
    [zip([{ path: 'a', text: 'x', method: 93 }]), 'packed in a way']
  ];
  for (const [blob, why] of refused) await expect(openZip(blob, 'x.zip'), why).rejects.toThrow(why);
  const bomb = await openZip(zip([{ path: 'bomb', text: 'x'.repeat(100_000), size: 10 }]), 'x.zip');
  await expect(bomb[0]!.bytes()).rejects.toThrow('bomb is damaged');
  const whole = zip([{ path: 'a', text: 'x'.repeat(100) }]);
  await expect(openZip(whole.slice(0, whole.size - 30), 'x.zip')).rejects.toThrow('it has no directory');
});
