/** Saving what the master writes as a file. */

import { asApiError } from '../../state/api';
import type { AppContext } from '../../state/context';
import { download } from '../charts/save';
import { nameText } from '../common/text';

/** Download a path as a file; a refusal is shown as a notification. */
export async function saveFile(app: AppContext, path: string, name: string): Promise<void> {
  try {
    const file = await app.api.blob(path);
    download(file, name);
    app.notify(`Saved ${name}`);
  } catch (error) {
    const problem = asApiError(error);
    app.notify(nameText(`${name} was not made: ${problem.message}${problem.hint ? `. ${problem.hint}` : ''}`, 600), 'bad');
  }
}
