/** Paths of the registry's routes, and names that they have in code. */

const quoted = encodeURIComponent;

/** Models shown at a time. */
export const PAGE = 50;

export function modelsPath({ search = '', archived = false, after = null, limit = PAGE }: {
  search?: string; archived?: boolean; after?: number | null; limit?: number;
}): string {
  const query = [`limit=${limit}`];
  if (search.trim()) query.push(`search=${quoted(search.trim())}`);
  if (archived) query.push('archived=true');
  if (after !== null) query.push(`after=${after}`);
  return `models?${query.join('&')}`;
}

export function modelPath(model: string): string {
  return `models/${quoted(model)}`;
}

export function versionPath(model: string, version: number | string): string {
  return `${modelPath(model)}/versions/${quoted(String(version))}`;
}

export function labelPath(model: string, label: string): string {
  return `${modelPath(model)}/labels/${quoted(label)}`;
}

/** `"digits@3"` as a string of Python: JSON's quotes and escapes are also Python's. */
export function loadCode(model: string, version: number | string): string {
  return `import detlab as det\n\nmodel = det.load_model(${JSON.stringify(`${model}@${version}`)})`;
}

export function downloadCommand(model: string, version: number | string): string {
  return `det model download ${shell(`${model}@${version}`)}`;
}

/** A word of a shell, quoted where it has to be. */
export function shell(word: string): string {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", "'\\''")}'`;
}
