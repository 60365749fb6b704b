/** The whole view of one experiment: title, progress, chart, notices, table. */

import { Chart, ChartOptions, countOutside } from './chart';
import { h } from './dom';
import { View } from './model';

export class ExperimentView {
  private options: ChartOptions = { log: false, smooth: false };
  private title = h('a', 'det-title');
  private chip = h('span', 'det-chip');
  private bar = h('div', 'det-bar-fill');
  private plot = h('div', 'det-plot');
  private metric = h('span', 'det-metric');
  private line = h('div', 'det-line');
  private hint = h('div', 'det-hint');
  private advice = h('div', 'det-advice');
  private notices = h('pre', 'det-notices');
  private table = h('table', 'det-table');
  private details = h('details', 'det-details');
  private summary = h('summary', '', 'Trials');
  private chart: Chart;
  private pending = 0;
  private observers: { disconnect(): void }[] = [];

  constructor(root: HTMLElement, private view: View) {
    const head = h('div', 'det-head');
    const tools = h('span', 'det-tools');
    tools.append(
      this.toggle('log', 'Logarithmic metric axis', on => { this.options.log = on; }),
      this.toggle('smooth', 'Moving average over the reports', on => { this.options.smooth = on; })
    );
    this.title.target = '_blank';
    this.title.rel = 'noopener';
    head.append(this.title, this.chip, tools);
    const bar = h('div', 'det-bar');
    bar.append(this.bar);
    const legend = h('div', 'det-legend');
    legend.append(this.metric, key('best', 'best'), key('going', 'other trials'), key('grey', 'stopped or failed'));
    const plot = this.plot;
    plot.setAttribute('role', 'img');
    const scroll = h('div', 'det-scroll');
    scroll.append(this.table);
    this.details.append(this.summary, scroll);
    root.classList.add('det-view');
    this.details.open = true;
    root.append(head, bar, this.line, legend, plot, this.hint, this.notices, this.advice, this.details);
    this.advice.hidden = true;
    this.chart = new Chart(plot, (t, s, v) => this.showHover(t, s, v));
    const sized = new ResizeObserver(() => this.chart.resize());
    sized.observe(plot);
    const themed = new MutationObserver(() => this.schedule());
    themed.observe(document.body, { attributes: true, attributeFilter: ['data-jp-theme-name', 'data-jp-theme-light', 'class'] });
    this.observers.push(sized, themed);
    this.schedule();
  }

  /** Redraw in the next animation frame; many calls cost one drawing. */
  schedule(): void {
    if (!this.pending) this.pending = requestAnimationFrame(() => { this.pending = 0; this.draw(); });
  }

  /** Say something below the plot, until the view goes away. */
  advise(text: string): void {
    this.advice.textContent = text;
    this.advice.hidden = false;
  }

  destroy(): void {
    cancelAnimationFrame(this.pending);
    this.observers.forEach(o => o.disconnect());
    this.chart.destroy();
  }

  private draw(): void {
    const e = this.view.experiment;
    if (!e) return;
    this.title.textContent = e.title;
    if (e.url) this.title.href = e.url;
    this.chip.textContent = e.state;
    this.chip.dataset.state = e.state;
    this.bar.style.width = `${(100 * (e.ended ? 1 : e.progress)).toFixed(1)}%`;
    this.line.textContent = e.line;
    const outside = this.options.log ? 0 : countOutside(this.view);
    this.metric.textContent = outside ? `${e.metric} (${outside} of the worst values not drawn)` : e.metric;
    this.notices.textContent = e.notices.join('\n');
    this.notices.hidden = e.notices.length === 0;
    this.summary.textContent = `Trials (${this.view.count})`;
    this.drawTable(e.best?.trial ?? null);
    const curves = [...this.view.curves.values()];
    const points = curves.reduce((n, c) => n + c.steps.length, 0);
    this.plot.setAttribute('aria-label', `Learning curves of ${e.metric}: ${curves.length} trials, ${points} points`);
    this.chart.draw(this.view, this.options);
    if (!this.hint.dataset.on) this.rest();
  }

  private drawTable(best: number | null): void {
    const row = (cells: string[], tag: 'th' | 'td'): HTMLTableRowElement => {
      const tr = h('tr');
      tr.append(...cells.map(c => h(tag, '', c)));
      return tr;
    };
    const head = h('thead');
    head.append(row(this.view.header, 'th'));
    const body = h('tbody');
    for (const id of this.view.order.slice(0, 50)) {
      const trial = this.view.trials.get(id)!;
      const tr = row(trial.cells, 'td');
      tr.classList.toggle('det-best', id === best);
      tr.classList.toggle('det-grey', trial.grey);
      body.append(tr);
    }
    this.table.replaceChildren(head, body);
  }

  private showHover(trial: number | null, step: number | null, value: number | null): void {
    if (trial === null) {
      delete this.hint.dataset.on;
      this.rest();
      return;
    }
    const cells = this.view.trials.get(trial)?.cells ?? [];
    const hparams = this.view.header.slice(4).map((name, i) => `${name} ${cells[i + 4] ?? ''}`).join(', ');
    const metric = this.view.experiment?.metric ?? 'metric';
    this.hint.dataset.on = '1';
    this.hint.textContent = `trial ${trial} · step ${step ?? '–'} · ${metric} ${value === null ? '–' : Number(value.toPrecision(5))}${hparams ? ' · ' + hparams : ''}`;
  }

  private rest(): void {
    const any = [...this.view.curves.values()].some(c => c.steps.length);
    const e = this.view.experiment;
    this.hint.textContent = any || !e ? 'Point at a curve to see its trial.' : `Waiting for the first report of ${e.metric} …`;
  }

  private toggle(label: string, tip: string, set: (on: boolean) => void): HTMLElement {
    const button = h('button', 'det-toggle', label);
    button.type = 'button';
    button.title = tip;
    button.setAttribute('aria-pressed', 'false');
    button.onclick = () => {
      const on = button.getAttribute('aria-pressed') !== 'true';
      button.setAttribute('aria-pressed', String(on));
      set(on);
      this.schedule();
    };
    return button;
  }
}

/** One entry of the legend. */
function key(kind: string, text: string): HTMLElement {
  const entry = h('span', 'det-key');
  entry.append(h('i', `det-${kind}-key`), text);
  return entry;
}
