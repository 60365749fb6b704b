/** A file that may travel, wherever it comes from. */

export interface Source {
  /** Below the working directory of the trials; `/` separates. */
  path: string;
  /** Bytes. */
  size: number;
  /** Null: nobody says (a browser does not), so its first line decides. */
  executable: boolean | null;
  bytes(): Promise<Uint8Array>;
}

/** What was chosen cannot travel. */
export class Unusable extends Error {
  constructor(message: string, readonly hint: string | null = null) {
    super(message);
    this.name = 'Unusable';
  }
}

export function ofFile(file: File, path: string): Source {
  const bytes = async (): Promise<Uint8Array> => {
    try {
      return new Uint8Array(await file.arrayBuffer());
    } catch {
      throw new Unusable(`${path} cannot be read`, 'It may have changed or gone since it was chosen: choose it again.');
    }
  };
  return { path, size: file.size, executable: null, bytes };
}
