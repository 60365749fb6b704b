/** The notebook widget (anywidget): a snapshot for whoever comes late, then increments. */

import plotCss from 'uplot/dist/uPlot.min.css';

import { ExperimentView } from '../components/experiment';
import { Update, View } from '../components/model';
import css from '../components/style.css';

interface Model {
  get(name: 'snapshot'): Update | Record<string, never>;
  on(name: string, callback: (message: unknown) => void): void;
  off(name: string, callback: (message: unknown) => void): void;
}

function addStyle(): void {
  if (document.getElementById('det-style')) return;
  const style = document.createElement('style');
  style.id = 'det-style';
  style.textContent = plotCss + css;
  document.head.append(style);
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  addStyle();
  const view = new View();
  const fold = (update: Update | Record<string, never>): void => {
    if ('experiment' in update) view.apply(update as Update);
  };
  fold(model.get('snapshot'));
  const shown = new ExperimentView(el, view);
  const onMessage = (message: unknown): void => {
    fold(message as Update);
    shown.schedule();
  };
  const onSnapshot = (): void => {
    fold(model.get('snapshot'));
    shown.schedule();
  };
  model.on('msg:custom', onMessage);
  model.on('change:snapshot', onSnapshot);
  return () => {
    model.off('msg:custom', onMessage);
    model.off('change:snapshot', onSnapshot);
    shown.destroy();
  };
}

export default { render };
