/**
 * Live views that JupyterLab cannot show or replace become still pictures.
 *
 * A page that was opened again does not know the ids of its outputs, so the kernel cannot replace them: it sends the
 * picture to the widget, and the widget says so. Where the kernel is gone, the widget is too: what was saved beside it
 * is shown.
 */

import type { INotebookTracker, NotebookPanel } from '@jupyterlab/notebook';

import { STILL } from '../widget/still';

export const VIEW_OF = 'application/vnd.detlab.view+json';
const WIDGET = 'application/vnd.jupyter.widget-view+json';

type Bundle = Record<string, unknown>;

/** What is used of a cell's outputs. */
export interface Outputs {
  readonly length: number;
  get(index: number): { data: Bundle; metadata?: unknown };
  set(index: number, output: { output_type: string; data: Bundle; metadata: Bundle }): void;
}

/** What is used of JupyterLab's cells; those of text have no outputs. */
export interface Cell {
  model: { outputs?: Outputs };
  outputArea?: { widgets: readonly { node: Node }[] };
}

export function keepStillViews(notebooks: INotebookTracker): void {
  const follow = (panel: NotebookPanel): void => {
    const cells = (): readonly Cell[] => panel.content.widgets as unknown as readonly Cell[];
    panel.node.addEventListener(STILL, event => putStill(cells(), event.target as Node, (event as CustomEvent<unknown>).detail));
    void panel.context.ready.then(() => panel.sessionContext.ready).then(async () => {
      const kernel = panel.sessionContext.session?.kernel;
      const said = kernel ? (await kernel.requestCommInfo({ target_name: 'jupyter.widget' })).content : { status: 'ok' as const, comms: {} };
      if (!panel.isDisposed && said.status === 'ok') dropLostWidgets(cells(), Object.keys(said.comms));
    }).catch(() => undefined); // the kernel died while it was asked: nothing is replaced
  };
  notebooks.forEach(follow);
  notebooks.widgetAdded.connect((_, panel) => follow(panel));
}

/** Put a picture in the place of the output that holds `target`. */
export function putStill(cells: readonly Cell[], target: Node, still: unknown): void {
  if (!(still as Bundle | null)?.['text/html']) return;
  for (const { model: { outputs }, outputArea } of cells) {
    const at = outputArea?.widgets.findIndex(one => one.node.contains(target)) ?? -1;
    if (outputs && at >= 0 && at < outputs.length && VIEW_OF in outputs.get(at).data) return replace(outputs, at, still as Bundle);
  }
}

/** Leave what was saved beside each of our widgets that is in no kernel. */
export function dropLostWidgets(cells: readonly Cell[], alive: readonly string[]): void {
  for (const { model: { outputs } } of cells) {
    for (let at = 0; at < (outputs?.length ?? 0); at++) {
      const { data } = outputs!.get(at);
      const id = (data?.[WIDGET] as { model_id?: string } | undefined)?.model_id;
      if (id !== undefined && VIEW_OF in data && 'text/html' in data && !alive.includes(id)) replace(outputs!, at, data);
    }
  }
}

function replace(outputs: Outputs, at: number, data: Bundle): void {
  const kept = Object.fromEntries(Object.entries(data).filter(([type]) => type !== WIDGET && type !== VIEW_OF));
  outputs.set(at, { output_type: 'display_data', data: kept, metadata: {} });
}
