/** The chosen or dropped files, folder or .zip. */

import { IGNORE_FILE, IgnoreRules } from './ignore';
import { ofFile, Unusable, type Source } from './source';
import { openZip, withoutTop } from './zip';

/** Most files in a dropped folder; more is probably a home directory, chosen by mistake. */
const MOST_SEEN = 100_000;

export interface Gathered {
  sources: Source[];
  /** Their origin: `the folder digits`; null for single files, which are added to those already chosen. */
  from: string | null;
  /** Folders that were left out as a whole. */
  folders: number;
}

/** From an <input type=file>, with or without `webkitdirectory`. */
export async function fromFiles(files: readonly File[]): Promise<Gathered> {
  const [first] = files;
  if (files.length === 1 && isZip(first!)) return ofZip(first!);
  const sources = files.map(file => {
    const path = file.webkitRelativePath;
    return ofFile(file, path ? path.slice(path.indexOf('/') + 1) : file.name);
  });
  const folder = first?.webkitRelativePath.split('/')[0];
  return { sources, from: folder ? `the folder ${folder}` : null, folders: 0 };
}

/** From a drop. Call it in the event: afterwards the browser has forgotten what was dropped. */
export async function fromDrop(data: DataTransfer): Promise<Gathered> {
  const files = [...data.files];
  const entries = [...data.items].map(item => (item.kind === 'file' ? item.webkitGetAsEntry?.() : null)).filter(entry => entry != null);
  if (!entries.some(entry => entry.isDirectory)) return fromFiles(files);
  if (entries.length > 1) throw new Unusable('a folder cannot be uploaded together with other files', 'Drop a single folder.');
  const root = entries[0] as FileSystemDirectoryEntry;
  const walk = new Walk(root);
  return { sources: await walk.run(), from: `the folder ${root.name}`, folders: walk.skipped };
}

async function ofZip(file: File): Promise<Gathered> {
  const { sources, top } = withoutTop(await openZip(file, file.name));
  if (!sources.length) throw new Unusable(`${file.name} is empty`);
  return { sources, from: top ? `${top} of ${file.name}` : file.name, folders: 0 };
}

function isZip(file: File): boolean {
  return /\.zip$/i.test(file.name);
}

/** Walk a dropped folder, skipping folders that are left out. */
class Walk {
  skipped = 0;
  private rules = new IgnoreRules();
  private found: Source[] = [];

  constructor(private root: FileSystemDirectoryEntry) {}

  async run(): Promise<Source[]> {
    const top = await children(this.root);
    const ignore = top.find(entry => entry.isFile && entry.name === IGNORE_FILE) as FileSystemFileEntry | undefined;
    if (ignore) this.rules = new IgnoreRules(await (await fileOf(ignore)).text());
    await this.folder(top, '');
    return this.found;
  }

  private async folder(entries: FileSystemEntry[], above: string): Promise<void> {
    for (const entry of entries) {
      const path = above + entry.name;
      if (entry.isDirectory) {
        if (this.rules.leavesOut(path, true)) this.skipped += 1;
        else await this.folder(await children(entry as FileSystemDirectoryEntry), `${path}/`);
      } else {
        this.found.push(ofFile(await fileOf(entry as FileSystemFileEntry), path));
        if (this.found.length > MOST_SEEN) throw new Unusable(`${this.root.name} contains more than ${MOST_SEEN} files`, 'Choose only the folder with the code.');
      }
    }
  }
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => {
    entry.file(resolve, () => reject(new Unusable(`${entry.name} cannot be read`)));
  });
}

/** All entries of a folder: a browser gives them by the hundred. */
async function children(folder: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = folder.createReader();
  const all: FileSystemEntry[] = [];
  for (;;) {
    const some = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, () => reject(new Unusable(`the folder ${folder.name} cannot be read`)));
    });
    if (!some.length) return all;
    all.push(...some);
  }
}
