/** A file to upload, wherever it comes from. */

export interface Source {
  /** Below the working directory of the trials; `/` separates. */
  path: string;
  /** Bytes. */
  size: number;
  /** Null if unknown (a browser does not say): then its first line decides. */
  executable: boolean | null;
  bytes(): Promise<Uint8Array>;
}

/** The chosen files cannot be uploaded. */
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
      throw new Unusable(`${path} cannot be read`, 'It may have been changed or deleted: choose it again.');
    }
  };
  return { path, size: file.size, executable: null, bytes };
}
