/**
 * Which files of a folder are uploaded: `.detignore` in gitignore syntax, and defaults. The same rules as the command
 * line's (a test compares them): the last pattern that matches an entry decides, and nothing below a folder that is left
 * out can be re-included.
 */

import ignore, { type Ignore } from 'ignore';

export const IGNORE_FILE = '.detignore';
/** Left out unless `.detignore` re-includes them. */
const DEFAULTS = [
  '.hg/', '.svn/', '__pycache__/', '*.py[co]', '.ipynb_checkpoints/', '.venv/', 'node_modules/', '.mypy_cache/', '.pytest_cache/',
  '.ruff_cache/', '.DS_Store', '.*.detlab', '.*.partial/', '.*.resume/'
];
/** Left out whatever `.detignore` says: a state folder holds secrets. */
const NEVER = ['.git', '.detlab/'];

export class IgnoreRules {
  private rules: Ignore;

  /** The text of a `.detignore`, "" for none; `downloads` are folders that downloads have made, unless it re-includes them. */
  constructor(text = '', downloads: readonly string[] = []) {
    const made = downloads.map(folder => `/${folder.replaceAll(/[\\*?[\]!# ]/g, '\\$&')}/`);
    const lines = text.replace(/^\uFEFF/, '').split('\n').map(line => line.replace(/\r$/, ''));
    // the nodes' file systems are case-sensitive; paths are validated elsewhere
    this.rules = ignore({ ignorecase: false, allowRelativePaths: true }).add([...DEFAULTS, ...made, ...lines, ...NEVER]);
  }

  /** Whether a file or folder is left out, by itself or with a folder above it; `/` separates. */
  leavesOut(path: string, folder = false): boolean {
    return this.rules.ignores(folder ? `${path}/` : path);
  }
}
