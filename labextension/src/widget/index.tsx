/** The notebook widget (anywidget): a snapshot for a page that is opened late, then what changed. */

import { createRoot } from 'react-dom/client';
import plotCss from 'uplot/dist/uPlot.min.css';

import chartsCss from '../components/charts/charts.css';
import themeCss from '../components/common/theme.css';
import { Frame, View } from './frames';
import liveCss from './live.css';
import { LiveView } from './LiveView';
import { STILL } from './still';

/** A widget that is still there so long after the end was not replaced by the still picture. */
const LEFT_BEHIND_MS = 5000;
/** Answers get lost while a page connects to its kernel: it is asked again after this time, then after twice as long, … */
const ASK_AGAIN_MS = 2000;
const ASK_AGAIN_LAST_MS = 60_000;

interface Model {
  get(name: 'snapshot'): Frame | Record<string, never>;
  on(name: string, callback: (message: unknown) => void): void;
  off(name: string, callback: (message: unknown) => void): void;
  send(message: unknown): void;
}

function addStyle(): void {
  if (document.getElementById('det-style')) return;
  const style = document.createElement('style');
  style.id = 'det-style';
  style.textContent = plotCss + themeCss + chartsCss + liveCss;
  document.head.append(style);
}

/** One widget on a page: its frames, and the component that shows them. */
class Widget {
  private view = new View();
  private root;
  private advice: string | null = null;
  private drawing = 0;
  private leftBehind = 0;
  /** The timer that asks again; runs while a snapshot was asked for and has not come yet. */
  private asking = 0;

  constructor(private model: Model, private el: HTMLElement) {
    el.classList.add('det-app', 'det-live');
    this.root = createRoot(el);
    model.on('msg:custom', this.onMessage);
    model.on('change:snapshot', this.onSnapshot);
    this.onSnapshot();
    // Messages sent after the model was made and before this page listened are lost, perhaps the last one among them.
    this.ask();
  }

  dispose(): void {
    window.clearTimeout(this.leftBehind);
    window.clearTimeout(this.asking);
    cancelAnimationFrame(this.drawing);
    this.model.off('msg:custom', this.onMessage);
    this.model.off('change:snapshot', this.onSnapshot);
    this.root.unmount();
  }

  private onMessage = (message: unknown): void => {
    // The search has ended, and this page missed that its output was replaced: JupyterLab's extension does it.
    const { still } = message as { still?: unknown };
    if (still) this.el.dispatchEvent(new CustomEvent(STILL, { bubbles: true, detail: still }));
    else this.take(message as Frame);
  };
  private onSnapshot = (): void => this.take(this.model.get('snapshot'));

  /** Ask for all there is, and again until it comes: a question or its answer may be lost. */
  private ask(again = ASK_AGAIN_MS): void {
    if (this.asking) return;
    try {
      this.model.send({ need: 'snapshot' });
    } catch {
      return; // The kernel is gone: the page keeps showing what it has.
    }
    this.asking = window.setTimeout(() => {
      this.asking = 0;
      if (again < ASK_AGAIN_LAST_MS) this.ask(2 * again);
    }, again);
  }

  private take(frame: Frame | Record<string, never>): void {
    if (!('experiment' in frame)) return;
    const complete = this.view.apply(frame as Frame);
    if (frame.whole) {
      window.clearTimeout(this.asking);
      this.asking = 0;
    }
    if (!complete) this.ask();
    if (this.view.experiment?.ended && !this.leftBehind) this.adviseLater(this.view.experiment.id);
    this.draw();
  }

  private adviseLater(id: number): void {
    this.leftBehind = window.setTimeout(() => {
      this.advice = `This view needs the kernel. Run %det_watch ${id} to leave a still picture in the notebook.`;
      this.draw();
    }, LEFT_BEHIND_MS);
  }

  /** Draw in the next animation frame; many calls cost one drawing. */
  private draw(): void {
    this.drawing ||= requestAnimationFrame(() => {
      this.drawing = 0;
      this.root.render(<LiveView view={this.view} advice={this.advice} />);
    });
  }
}

function render({ model, el }: { model: Model; el: HTMLElement }): () => void {
  addStyle();
  const widget = new Widget(model, el);
  return () => widget.dispose();
}

export default { render };
