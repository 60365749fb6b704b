/** The notebook widget (anywidget): a snapshot for whoever comes late, then increments. */

import plotCss from 'uplot/dist/uPlot.min.css';

import { ExperimentView } from '../components/liveview';
import { Update, View } from '../components/model';
import css from '../components/style.css';

/** If the widget is still there so long after the end, nobody replaced it by the still picture. */
const LEFT_BEHIND_MS = 5000;

interface Model {
  get(name: 'snapshot'): Update | Record<string, never>;
  on(name: string, callback: (message: unknown) => void): void;
  off(name: string, callback: (message: unknown) => void): void;
  send(message: unknown): void;
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
  const shown = new ExperimentView(el, view);
  let asked = false;
  let leftBehind = 0;
  const ask = (): void => {
    if (asked) return;
    asked = true;
    try {
      model.send({ need: 'snapshot' });
    } catch {
      // The kernel is gone: what is known of the search stays to be seen.
    }
  };
  const fold = (update: Update | Record<string, never>): void => {
    if (!('experiment' in update)) return;
    const fits = view.apply(update as Update);
    if (update.whole) asked = false;
    if (!fits) ask();
    if (view.experiment?.ended && !leftBehind) {
      const id = view.experiment.id;
      leftBehind = window.setTimeout(
        () => shown.advise(`This view lives in the kernel. %det_watch ${id} leaves a still picture in the notebook.`),
        LEFT_BEHIND_MS
      );
    }
    shown.schedule();
  };
  const onMessage = (message: unknown): void => fold(message as Update);
  const onSnapshot = (): void => fold(model.get('snapshot'));
  onSnapshot();
  model.on('msg:custom', onMessage);
  model.on('change:snapshot', onSnapshot);
  // What came since the model was made, and before anybody listened, is lost; the last of it tells nobody.
  ask();
  return () => {
    window.clearTimeout(leftBehind);
    model.off('msg:custom', onMessage);
    model.off('change:snapshot', onSnapshot);
    shown.destroy();
  };
}

export default { render };
