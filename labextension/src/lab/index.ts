/** The JupyterLab extension. */

import type { JupyterFrontEnd, JupyterFrontEndPlugin } from '@jupyterlab/application';

const plugin: JupyterFrontEndPlugin<void> = {
  id: '@detlab/labextension:plugin',
  description: 'Experiments, notebooks and the cluster of detlab',
  autoStart: true,
  activate: (_app: JupyterFrontEnd) => undefined
};

export default plugin;
