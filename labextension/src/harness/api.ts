/** A master made of fixtures: answers from memory, and streams that the test or the bench feeds. */

import { Level, LEVELS } from '../components/logs/filter';
import { Api, ApiError } from '../state/api';
import type { Event, ExperimentView, GrantList, LogLine, SeriesView, TrialView } from '../state/wire';
import * as artifacts from './artifacts';
import * as compared from './comparison';
import * as made from './fixtures';
import * as found from './finding';
import * as media from './media';
import * as kept from './registry';
import * as teams from './teams';
import * as told from './told';
import * as tracked from './tracked';

export interface Case {
  experiment?: Partial<ExperimentView>;
  trials: number;
  /** Trials that have a curve, and points of each. */
  curves: number;
  points: number;
  logs: number;
  experiments: number;
  hostile?: boolean;
  /** Values that are no numbers, and endless names. */
  nan?: boolean;
  /** Trials whose points are drawn when they start. */
  due?: boolean;
  /** Paths (by beginning) that are refused, with the status. */
  refuse?: Record<string, number>;
  /** With whom the experiment is shared. */
  grants?: GrantList;
  /** Nothing is ever answered. */
  silent?: boolean;
}

export class FixtureApi implements Api {
  asked: string[] = [];
  private open = new Map<string, { path: string; line: (line: unknown) => void }>();
  private trialList: TrialView[] | null = null;

  /** As text, which is read when it is asked for, like an answer that came over the network. */
  private readonly overview: string;

  constructor(readonly of: Case) {
    this.overview = JSON.stringify(made.overview(of.experiments));
  }

  async get<T>(path: string): Promise<T> {
    this.asked.push(`GET ${path}`);
    if (this.of.silent) return new Promise(() => undefined);
    const [bare = '', query = ''] = path.split('?');
    for (const [start, status] of Object.entries(this.of.refuse ?? {})) {
      if (bare.startsWith(start)) throw new ApiError(status, { code: 'made_up', message: status === 404 ? 'there is no such experiment, or it is not yours' : 'the database is being recovered', hint: status === 404 ? 'det experiment list' : 'try again in a minute' });
    }
    const answer = this.answer(bare, new URLSearchParams(query));
    if (answer === undefined) throw new ApiError(404, { code: 'not_found', message: `the fixtures know no ${bare}` });
    return answer as T;
  }

  async post<T>(path: string): Promise<T> {
    this.asked.push(`POST ${path}`);
    const verb = path.split('/').pop();
    const state = ({ pause: 'PAUSED', activate: 'ACTIVE', cancel: 'STOPPING_CANCELED', kill: 'STOPPING_KILLED' } as const)[verb as 'pause'];
    if (path.startsWith('trials/')) return { ...this.trials()[0]!, state: 'STOPPING_KILLED' } as T;
    if (path.startsWith('tasks/')) return made.task({ state: 'STOPPING_KILLED' }) as T;
    return this.experiment({ state }) as T;
  }

  async replace<T>(path: string): Promise<T> {
    throw new ApiError(404, { code: 'not_found', message: `the fixtures set nothing at ${path}` });
  }

  async del<T>(path: string): Promise<T> {
    this.asked.push(`DELETE ${path}`);
    return {} as T;
  }

  async blob(path: string): Promise<Blob> {
    this.asked.push(`GET ${path}`);
    return new Blob(['id\n']);
  }

  async text(path: string): Promise<string> {
    this.asked.push(`GET ${path}`);
    const logged = media.text(path, this.of.hostile ?? false) ?? tracked.text(path, this.of.hostile ?? false);
    if (logged !== null) return logged;
    const digest = decodeURIComponent(path.split('/').pop() ?? '');
    const file = made.codeFiles().find(one => one.digest === digest);
    return this.of.hostile ? `${made.HOSTILE.log}\n${made.HOSTILE.name}` : made.CODE[file?.path ?? ''] ?? '';
  }

  stream(path: string, onLine: (line: unknown) => void, signal: AbortSignal): Promise<void> {
    const bare = path.split('?')[0]!;
    this.asked.push(`STREAM ${path}`);
    const mine = { path, line: onLine };
    this.open.set(bare, mine);
    onLine(null);
    const trial = /^trials\/(\d+)\/logs/.exec(bare);
    if (trial && this.oneTrial(Number(trial[1]))?.state !== 'ACTIVE') return Promise.resolve();
    const beat = window.setInterval(() => onLine(null), 5000);
    return new Promise(resolve => signal.addEventListener('abort', () => {
      window.clearInterval(beat);
      if (this.open.get(bare) === mine) this.open.delete(bare);
      resolve();
    }));
  }

  /** The streams that are open now. */
  get streams(): string[] {
    return [...this.open.values()].map(one => one.path);
  }

  href(path: string): string {
    return media.image(path) ?? `/api/v1/${path}`;
  }

  /** Say an event or a log line on an open stream. */
  say(path: string, line: Event | LogLine): void {
    this.open.get(path)?.line(line);
  }

  private experiment(over: Partial<ExperimentView> = {}): ExperimentView {
    const hostile = this.of.hostile ? { name: made.HOSTILE.name, metric: made.HOSTILE.name, owner: made.HOSTILE.name, warnings: [made.HOSTILE.log], notes: `${made.HOSTILE.log}\n${made.HOSTILE.name}`, description: made.HOSTILE.name } : {};
    return made.experiment({ ...hostile, ...this.of.experiment, ...over });
  }

  private trials(): TrialView[] {
    const hostile = this.of.hostile ? { hparams: { [made.HOSTILE.name]: made.HOSTILE.value, lr: 0.1 }, agent_id: made.HOSTILE.name, status: made.HOSTILE.log } : {};
    this.trialList ??= Array.from({ length: this.of.trials }, (_, i) => made.trial(i, this.of.trials, this.of.nan ? made.odd(i) : this.of.due ? made.due(i) : hostile));
    return this.trialList;
  }

  private curves(): SeriesView[] {
    const name = this.of.hostile ? made.HOSTILE.name : 'validation_error';
    return this.trials().slice(0, this.of.curves).map(trial => {
      const points = Math.max(2, Math.round(this.of.points * (this.of.points >= 1000 ? 1 : trial.progress)));
      const curve = made.series(trial.id, points, Math.max(1, Math.round(1000 / this.of.points)));
      const values = this.of.nan ? curve.values.map((value, i) => (trial.index % 3 === 0 ? 'NaN' : i % 9 > 6 ? 'Infinity' : value)) : curve.values;
      return { ...curve, values: values as number[], name };
    });
  }

  private oneTrial(id: number): TrialView | undefined {
    const trial = this.trials().find(one => one.id === id);
    if (!trial) return undefined;
    const short = { count: 96, min: 0.02, max: 0.9, mean: 0.2, last: 0.031, last_step: 960, nan_count: 0 };
    const name = this.of.hostile ? made.HOSTILE.name : 'validation_error';
    return { ...trial, summary: { validation: { [name]: short, accuracy: short }, training: { loss: { ...short, nan_count: 2 }, lr: short } } };
  }

  private answer(path: string, query: URLSearchParams): unknown {
    const [kind, id, part, ...rest] = path.split('/');
    if (path === 'trials' || path === 'experiments') return this.table(path, query);
    if (path === 'filters/complete') return found.completions(query, this.of.hostile);
    if (path === 'saved-views') return { items: this.of.trials ? found.views(this.of.hostile) : [], next: null };
    if (path === 'alerts') return { items: this.of.trials ? made.alerts(this.of.hostile) : [], unread: this.of.trials ? 2 : 0, next: null };
    if (path === 'overview') return JSON.parse(this.overview);
    if (path === 'experiments') return { items: this.of.trials ? Array.from({ length: 12 }, (_, i) => this.experiment({ id: 40 - i, workspace_id: 7, workspace: 'vision', project_id: 3, project: 'digits', ...(i % 3 === 1 ? { state: 'COMPLETED', owner: 'ben' } : {}) })) : [], next: null };
    if (kind === 'experiments') return this.ofExperiment(part, query);
    if (kind === 'workspaces') return this.ofTeams(id, part, rest[0]);
    if (kind === 'trials') return this.ofTrial(Number(id), part, rest, query);
    if (kind === 'tasks' && id === undefined) return { items: this.of.trials ? teams.tasks(this.of.hostile ?? false) : [], next: null };
    if (kind === 'artifacts') return artifacts.answer(this.of.trials, id, [part, ...rest], query, this.of.hostile ?? false);
    if (kind === 'runs' && part === 'artifacts') return { items: this.of.trials ? artifacts.ofRun() : [], next: null };
    if (kind === 'runs' && part === 'logs') return this.logs(query);
    if (kind === 'runs') return tracked.answer(this.of.trials, id, part, rest[0], query, this.of.hostile ?? false);
    if (kind === 'tasks') return this.ofTask(id!, part, query);
    if (kind === 'models') return this.ofModel(id, part, rest, query);
    if (kind === 'checkpoints' && part === undefined) return made.checkpoint(5);
    if (kind === 'comparison') return this.ofComparison(id, query);
    if (kind === 'alerts' || kind === 'webhooks' || kind === 'schedules') return told.answer(this.of, path);
    if (kind === 'templates' || kind === 'config-policies') return told.configs(this.of, path, query);
    if (path === 'storage/usage') return this.ofStorage(query);
    return undefined;
  }

  private table(table: 'trials' | 'experiments', query: URLSearchParams): unknown {
    const problem = found.problemOf(query.get('filter') ?? '');
    if (problem) throw new ApiError(422, { code: 'config.invalid', message: problem, problems: [{ path: 'filter', message: problem, hint: null, level: 'error' }] });
    return found[table](this.of.trials, query, this.of.hostile);
  }

  private ofExperiment(part: string | undefined, query: URLSearchParams): unknown {
    if (part === undefined) return this.experiment();
    if (part === 'gc') return kept.gc(...['save_experiment_best', 'save_trial_best', 'save_trial_latest'].map((key, i) => Number(query.get(key) ?? Number(i > 0))));
    if (part === 'grants') return this.of.grants ?? { items: [] };
    if (part === 'curves') {
      const most = Number(query.get('max_trials') ?? 100);
      const group = query.get('group') ?? 'validation';
      const named = query.get('name');
      const curves = this.curves().filter(one => group === 'validation' && (named === null || named === one.name)).slice(0, most);
      return { cursor: 10, experiment: this.experiment({ config: null }), trials: this.trials().slice(0, most), curves };
    }
    if (part === 'trials') {
      const after = Number(query.get('after') ?? 0);
      const left = this.trials().filter(trial => trial.id > after);
      const items = left.slice(0, Number(query.get('limit') ?? 200));
      return { items, next: items.length < left.length ? items[items.length - 1]!.id : null };
    }
    if (part === 'checkpoints') return { items: this.of.trials ? Array.from({ length: 12 }, (_, i) => made.checkpoint(i)) : [] };
    if (part === 'search') return { items: this.of.trials ? made.acts(this.trials(), this.of.hostile) : [] };
    if (part === 'code') return { items: made.codeFiles() };
    if (part === 'timeline') return { items: made.timeline(Math.min(this.of.trials, 60)) };
    return undefined;
  }

  private ofTrial(id: number, part: string | undefined, rest: string[], query: URLSearchParams): unknown {
    if (part === undefined) return this.oneTrial(id);
    if (part === 'metrics') {
      const trial = this.oneTrial(id)!;
      const points = Math.max(2, Math.round(100 * trial.progress));
      const name = this.of.hostile ? made.HOSTILE.name : 'validation_error';
      return { items: [
        { ...made.series(id, points), name }, { ...made.series(id, points, 10, 'loss', 'validation') }, made.series(id, points * 4, 2.5, 'loss', 'training'),
        made.series(id, points * 4, 2.5, 'lr', 'training'), made.series(id, points, 10, 'accuracy', 'validation')
      ].map(one => ({ ...one, steps: one.steps.map(Math.round) })) };
    }
    if (part === 'checkpoints') return { items: [3, 2, 1].map(i => ({ ...made.checkpoint(i), trial_id: id })) };
    if (part === 'governance') return made.learning(id, this.of.hostile ? made.HOSTILE.name : 'web');
    if (part === 'logs' && !rest.length) return this.logs(query);
    if (part === 'media' && rest[0] === 'keys') return media.keys(this.of.trials, this.of.hostile ?? false);
    if (part === 'media' && rest[0] === 'steps') return media.steps(this.of.trials);
    if (part === 'media' && !rest.length) return media.page(id, query, this.of.hostile ?? false);
    return undefined;
  }

  private ofModel(id: string | undefined, part: string | undefined, [version, last]: string[], query: URLSearchParams): unknown {
    const hostile = this.of.hostile ?? false;
    const of = hostile ? kept.hostileVersion : kept.version;
    if (id === undefined) {
      const name = query.get('name')?.toLowerCase() ?? '';
      const all = hostile ? [1, 2].map(kept.hostileModel) : this.of.trials ? kept.models() : [];
      return { items: all.filter(one => one.name.toLowerCase().includes(name)), after: null };
    }
    if (part === undefined) return hostile ? kept.hostileModel(1) : kept.models().find(one => one.name === decodeURIComponent(id));
    if (part === 'labels') return { items: this.of.trials ? kept.moves(hostile) : [] };
    if (part === 'compare') return kept.comparison((query.get('versions') ?? '').split(',').map(Number), hostile);
    if (last === 'lineage') return kept.lineage(hostile);
    return version === undefined ? { items: this.of.trials ? [5, 4, 3, 2, 1].map(number => of(number)) : [], after: null } : of(Number(version));
  }

  private ofComparison(part: string | undefined, query: URLSearchParams): unknown {
    const of = { trials: this.trials(), points: this.of.points, hostile: this.of.hostile };
    if (part === 'curves') return compared.curves(of, query);
    return part === 'code' ? compared.code(query, this.of.hostile) : compared.comparison(of, query);
  }

  private ofTeams(id: string | undefined, part: string | undefined, project: string | undefined): unknown {
    const hostile = this.of.hostile ?? false;
    // Who has done nothing yet works alone, too.
    if (id === undefined) return { items: this.of.trials ? teams.workspaces(hostile) : teams.workspaces(false).slice(0, 1), after: null };
    if (part === 'members') return teams.members(hostile);
    if (part === 'projects' && project !== undefined) return teams.projects(hostile).find(one => String(one.id) === project);
    if (part === 'projects') return { items: this.of.trials ? teams.projects(hostile) : [], after: null };
    return teams.workspaces(hostile).find(one => String(one.id) === id);
  }

  private ofStorage(query: URLSearchParams): unknown {
    const by = (query.get('by') ?? 'user') as 'user';
    const usage = kept.storage(by, this.of.hostile);
    const quiet = query.has('limit'); // what the panel asks
    return this.of.trials && !quiet ? usage : { ...usage, items: [], warnings: [], total: { ...usage.total, checkpoints: 0, checkpoint_bytes: 0, other_bytes: 0, trash_bytes: 0 } };
  }

  private ofTask(id: string, part: string | undefined, query: URLSearchParams): unknown {
    const over = TASKS[id] ?? {};
    if (part === undefined) return made.task({ id, ...over, ...(this.of.hostile ? { name: made.HOSTILE.name } : {}) });
    if (part === 'logs') return id === 'queued' ? { items: [], next: null } : this.logs(query);
    if (part === 'outputs') {
      return { items: id === 'run-1' ? [{ name: 'digits.ipynb', size: 48_233, digest: `sha256:${'e'.repeat(64)}`, updated_at: made.BEGAN + 400 }] : [] };
    }
    return undefined;
  }

  private logs(query: URLSearchParams): { items: LogLine[]; next: null; older: number | null } {
    const rank = query.get('rank');
    const node = query.get('node');
    const search = query.get('search')?.toLowerCase();
    const least = LEVELS.indexOf(query.get('level') as Level);
    const before = Number(query.get('before') ?? Infinity);
    const all = Array.from({ length: this.of.logs }, (_, i) => made.logLine(i + 1, this.of.hostile && i % 2 ? { text: made.HOSTILE.log } : {}));
    const fitting = all.filter(line => (rank === null || line.rank === Number(rank)) && (node === null || line.node === node) && (!search || line.text.toLowerCase().includes(search))
      && LEVELS.indexOf(line.level as Level) >= least && line.id < before);
    const items = fitting.slice(-Number(query.get('tail') ?? query.get('limit') ?? 1000));
    return { items, next: null, older: items.length < fitting.length ? items[0]!.id : null };
  }
}

const TASKS: Record<string, Parameters<typeof made.task>[0]> = {
  queued: { kind: 'notebook', last_activity: null, name: 'patient-tortoise', display_state: 'QUEUED', allocation_state: 'PENDING', url: null, started_at: null, agent_id: null, place: 3, pending_reason: 'all 8 slots of pool default are in use', slots_needed: 2 },
  failed: { kind: 'command', name: 'tidy-lynx', state: 'ERROR', display_state: '', end_reason: 'failed', url: null, ended_at: made.BEGAN + 90, exit_code: 1, server_name: null, runtime: 'process', image: null, slots_needed: 1, failure: { ...made.FAILURE, trial_id: null, kind: 'import', rank: null, message: "ModuleNotFoundError: No module named 'detlab_extras'", where: 'run.py, line 3', hint: null } },
  'run-1': { kind: 'notebook_run', name: 'digits.ipynb', url: null, server_name: null, slots_needed: 1 },
  idle: { kind: 'tensorboard', name: 'quiet-crane', cull_at: made.BEGAN + 4000 }
};
