/** JupyterLab's file dialog: choose a file that can be run, or a folder of code. */

import { FileDialog, IDefaultFileBrowser } from '@jupyterlab/filebrowser';

/** What the file browser's menu and the form can run. */
export const RUNNABLE = /\.(py|ipynb|ya?ml)$/;

/** Paths as the contents manager has them; null if the dialog is closed without a choice. */
export interface Picker {
  file(): Promise<string | null>;
  folder(): Promise<string | null>;
}

export function pickerOf(files: IDefaultFileBrowser): Picker {
  const manager = files.model.manager;
  const where = (): string => files.model.path;
  return {
    file: async () => {
      const answer = await FileDialog.getOpenFiles({
        manager, defaultPath: where(), title: 'Run a script, a notebook or a config',
        filter: model => (model.type === 'directory' || RUNNABLE.test(model.path) ? {} : null)
      });
      const chosen = answer.button.accept ? answer.value?.[0] : undefined;
      return chosen && chosen.type !== 'directory' ? chosen.path : null;
    },
    folder: async () => {
      const answer = await FileDialog.getExistingDirectory({ manager, defaultPath: where(), title: 'Upload the code of a folder' });
      const chosen = answer.button.accept ? answer.value?.[0] : undefined;
      return chosen ? manager.services.contents.localPath(chosen.path) : null;
    }
  };
}
