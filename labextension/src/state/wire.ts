/** The wire models (detlab.schemas). Made by labextension/wire.py: do not edit. */

/** Non-finite floats travel as these names: strict JSON has no others. */
export type Nonfinite = 'NaN' | 'Infinity' | '-Infinity';

/** A metric's value. */
export type Float = number | Nonfinite;

/** An agent as the master sees it. */
export interface AgentView {
  id: string;
  state: 'connected' | 'suspect' | 'lost';
  version: string;
  address: string;
  serves_user: string | null;
  slots: SlotView[];
  running: number;
  last_seen: number;
  enabled: boolean;
  mode: 'enabled' | 'disabled' | 'draining' | 'drained';
  drain_until: number | null;
  runtimes: string[];
  pool: string;
  labels: Record<string, string>;
  enrolled_at: number;
  cpus: number | null;
  cpus_asked: number;
  memory: number | null;
  memory_asked: number;
  refused: string | null;
  note: string;
  enforces: string[];
  attestation: string;
}

/** A page of alerts, the newest first. */
export interface AlertList {
  items: AlertView[];
  unread: number;
  next: number | null;
}

/** The rules of the caller, the oldest first. */
export interface AlertRuleList {
  items: AlertRuleView[];
  next: number | null;
}

/** A rule of the caller. */
export interface AlertRuleView {
  id: number;
  kind: 'completed' | 'failed' | 'improved' | 'plateau' | 'waiting' | 'budget' | 'alert' | 'log';
  amount: number | null;
  pattern: string;
  scope: 'owner' | 'experiment' | 'project' | 'workspace';
  scope_id: number | null;
  scope_name: string;
  bell: boolean;
  webhook: number | null;
  email: boolean;
  owner: string;
  created_at: number;
}

/** Something that its reader was told. Title and text may be anybody's: show them as text. */
export interface AlertView {
  id: number;
  kind: 'completed' | 'failed' | 'improved' | 'plateau' | 'waiting' | 'budget' | 'alert' | 'log' | 'test';
  level: 'debug' | 'info' | 'warn' | 'error';
  title: string;
  text: string;
  experiment_id: number | null;
  trial_id: number | null;
  run_id: string | null;
  held_back: number;
  created_at: number;
  read: boolean;
}

/** Progress of one attempt, in order; it never goes back. */
export type AllocationState = 'PENDING' | 'ASSIGNED' | 'PULLING' | 'STARTING' | 'RUNNING' | 'TERMINATING' | 'TERMINATED';

/** A file of a version, or a reference to what lies elsewhere. */
export interface ArtifactFile {
  path: string;
  size: number;
  digest: string;
  uri: string;
}

/** A page of files, by path. */
export interface ArtifactFileList {
  items: ArtifactFile[];
  next: string | null;
}

/** A page of artifacts, the newest first. */
export interface ArtifactList {
  items: ArtifactView[];
  next: number | null;
}

/** A page of versions, the newest first. */
export interface ArtifactVersionList {
  items: ArtifactVersionView[];
  next: number | null;
}

/** A version: its files never change. */
export interface ArtifactVersionView {
  artifact_id: number;
  artifact: string;
  kind: string;
  artifact_reference: string;
  version: number;
  aliases: string[];
  comment: string;
  metadata: Record<string, unknown>;
  digest: string;
  files: number;
  references: number;
  size: number;
  owner: string;
  created_at: number;
  logged_by: string[];
  used_by: string[];
  shortened: string[];
}

/** A name under which versions are kept. */
export interface ArtifactView {
  id: number;
  name: string;
  kind: string;
  owner: string;
  description: string;
  created_at: number;
  updated_at: number;
  versions: number;
  latest: number | null;
  size: number;
  aliases: Record<string, number>;
  right: string;
  reference: string;
  workspace: string;
  shortened: string[];
}

/** The same, as administrators set it. */
export interface AskedConstraints {
  resources?: AskedLimits;
  priority_limit?: number | null;
}

/** The same, as administrators set it. */
export interface AskedLimits {
  max_slots?: number | null;
}

/** The slots that one attempt of a trial held, and from when to when. */
export interface AttemptSpan {
  trial_id: number;
  run: number;
  agent_id: string | null;
  slots: string[];
  started_at: number;
  ended_at: number | null;
}

/** One attempt to run a trial: the first, one after a restart, or one after a pause or a preemption. */
export interface AttemptView {
  run: number;
  agent_id: string | null;
  resume_step: number | null;
  started_at: number | null;
  ended_at: number | null;
  reason: string | null;
}

/** Who did what. */
export interface AuditItem {
  id: number;
  time: number;
  actor: string;
  action: string;
  subject: string;
  detail: string;
}

/** GET audit?before=&limit=&actor=&action= [admin]: newest first. */
export interface AuditPage {
  items: AuditItem[];
  next: number | null;
}

/** What became of one of them. */
export interface BatchItem {
  id: number;
  result: 'done' | 'unchanged' | 'refused';
  name: string;
  state: string;
  reason: string;
  hint: string;
}

/** What became of each, in the order of the request. */
export interface BatchReply {
  items: BatchItem[];
  left: number[];
  next: number | null;
  undo: BatchRequest[];
}

/** POST experiments/batch: either `experiment_ids` or a `filter`. */
export interface BatchRequest {
  act: 'pause' | 'activate' | 'cancel' | 'kill' | 'archive' | 'unarchive' | 'delete' | 'move' | 'add_labels' | 'remove_labels';
  experiment_ids: number[];
  filter: string;
  archived: 'no' | 'only' | 'any';
  before: number | null;
  labels: string[];
  workspace: string;
  project: string;
  keep_storage: boolean;
  dry_run: boolean;
}

/** The batch system that places the tasks of a pool. */
export interface BatchSystemView {
  name: string;
  slots: number;
  slots_per_node: number;
  partitions: Partition[];
}

/** The best validation so far. */
export interface BestView {
  trial_id: number;
  trial_index: number;
  steps_completed: number;
  value: Float;
  checkpoint: string | null;
  failed: boolean;
}

/** A budget of a search. */
export interface BudgetView {
  name: string;
  limit: number;
  used: number;
}

/** What may come next in a filter. */
export interface Candidate {
  text: string;
  kind: string;
  about: string;
}

/** Of POST tasks: a command of the master's compares the caller's storages with what the master knows. */
export interface CheckStorage {
  experiment_id?: number | null;
  repair?: boolean;
}

/** One file of a manifest, keyed by its relative POSIX path. */
export interface CheckpointFile {
  size: number;
  digest: string;
  mode: number;
}

/** A committed checkpoint. */
export interface CheckpointView {
  uuid: string;
  trial_id: number;
  experiment_id: number;
  tracked_run: string;
  run: number;
  steps_completed: number;
  state: 'COMPLETED' | 'PARTIALLY_DELETED' | 'DELETED';
  created_at: number;
  size: number;
  files: Record<string, CheckpointFile>;
  metadata: Record<string, unknown>;
  storage: Record<string, unknown>;
  validation: Float | null;
  metrics: Record<string, number>;
  manifest_digest: string;
  trash_until: number | null;
  removing: boolean;
  removal_failure: string;
  shortened: string[];
}

/** What administrators tell everybody at the top of all pages. */
export interface ClusterMessageView {
  text: string;
  set_by: string;
  set_at: number;
  begins_at: number;
  ends_at: number | null;
}

/** One look at the cluster. */
export interface ClusterView {
  cluster_id: string;
  version: string;
  protocol: number;
  url: string;
  started_at: number;
  agents: number;
  slots_total: number;
  slots_used: number;
  tasks_running: number;
  experiments_active: number;
  draining: boolean;
  is_copy: boolean;
  message: ClusterMessageView | null;
}

/** GET comparison/code?trials=12,15: files of the code that are not the same in all runs, in parts. */
export interface CodeComparison {
  experiments: number[];
  items: FileDifference[];
  absent_trials: number[];
  absent_experiments: number[];
  note: string;
  next: number | null;
}

/** One file of an experiment's bundle; its text is at experiments/{id}/code/{digest}. */
export interface CodeFile {
  path: string;
  size: number;
  digest: string;
}

/** GET experiments/{experiment_id}/code. */
export interface CodeList {
  items: CodeFile[];
  next: number | null;
}

/** One side of a comparison: a trial, an experiment, for which its best trial stands, or a run from anywhere. */
export interface ComparedRun {
  kind: 'trial' | 'experiment' | 'run';
  id: number;
  run_id: string;
  experiment_id: number;
  name: string;
  owner: string;
  labels: string[];
  state: string;
  trial_ids: number[];
  index: number | null;
  seed: number | null;
  seeds: number;
  metric: string;
  smaller_is_better: boolean;
  best: Float | null;
  deviation: Float | null;
  hparams: Record<string, unknown>;
  steps_completed: number;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  bundle: string | null;
  shortened: string[];
}

/** A curve of a trial, or of a run from anywhere. */
export interface ComparedSeries {
  trial_id: number;
  group: string;
  name: string;
  steps: number[];
  values: Float[];
  times: number[];
  total: number;
  run_id: string;
}

/** GET models/{model}/compare?versions=1,2,production: versions side by side. */
export interface Comparison {
  versions: VersionView[];
  metrics: Difference[];
  hyperparameters: Difference[];
  config: Difference[];
  environment: Difference[];
  code: FileDifference[];
}

/** What may come next in a filter at a cursor. */
export interface Completions {
  begin: number;
  items: Candidate[];
  problem: string;
  column: number | null;
}

/** POST alerts/email/confirm: the code that came. */
export interface ConfirmEmail {
  code: string;
}

/** POST experiments/{experiment_id}/continue. */
export interface ContinueExperiment {
  config?: Record<string, unknown>;
  trial_ids?: number[];
  from_earlier?: boolean;
  idempotency_key?: string | null;
}

/** A cap of cost that stands, and what is used of it. */
export interface CostCapView {
  kind: string;
  name: string;
  cost: number;
  used: number;
  reached: boolean;
  set_by: string;
  set_at: number;
}

/** What an experiment will cost, by its config and the price of its pool. */
export interface CostView {
  pool: string;
  price: number;
  per_hour: number | null;
  at_most: number | null;
  currency: string;
}

/** POST experiments. `config` is the raw config (a mapping) or `config_yaml` its text. */
export interface CreateExperiment {
  config?: Record<string, unknown> | null;
  config_yaml?: string | null;
  bundle?: string | null;
  idempotency_key?: string | null;
  activate?: boolean;
  dry_run?: boolean;
  source?: Record<string, unknown>;
  forked_from?: number | null;
  template?: string | null;
}

/** What became of a submit. `experiment` is None for a dry run. */
export interface CreateExperimentReply {
  experiment: ExperimentView | null;
  created: boolean;
  warnings: ProblemView[];
  config: Record<string, unknown>;
  forecast: ForecastView | null;
  given: GivenView[];
  cost: CostView | null;
}

/** POST models. A model is a name under which versions are kept. */
export interface CreateModel {
  name: string;
  description?: string;
  notes?: string;
  metadata?: Record<string, unknown>;
  labels?: string[];
  workspace?: string;
}

/** POST workspaces/{workspace}/projects. */
export interface CreateProject {
  name: string;
  description?: string;
  notes?: string;
}

/** POST tasks. `config` is a mapping, or `config_yaml` its text (taskconf.TaskConfig). */
export interface CreateTask {
  kind: TaskKind;
  name?: string | null;
  config?: Record<string, unknown> | null;
  config_yaml?: string | null;
  bundle?: string | null;
  idempotency_key?: string | null;
  dry_run?: boolean;
  experiment_ids?: number[];
  trial_ids?: number[];
  source?: TaskSource;
  reads?: ReadCheckpoint | null;
  checks?: CheckStorage | null;
  template?: string | null;
}

/** What became of it. `task` is None for a dry run. */
export interface CreateTaskReply {
  task: TaskView | null;
  created: boolean;
  warnings: ProblemView[];
  config: Record<string, unknown>;
  given: GivenView[];
}

/** POST models/{model}/versions: register a checkpoint; one of the two names it. A checkpoint that has a version of this model already gives that version again. */
export interface CreateVersion {
  checkpoint?: string | null;
  experiment_id?: number | null;
  name?: string;
  comment?: string;
  notes?: string;
  metadata?: Record<string, unknown>;
  semver?: string | null;
  labels?: string[];
  reason?: string;
  idempotency_key?: string | null;
}

/** POST webhooks: makes a webhook of the caller's. */
export interface CreateWebhook {
  name: string;
  url: string;
  format?: 'default' | 'slack' | 'teams' | 'apprise';
  triggers?: ('completed' | 'failed' | 'improved' | 'plateau' | 'waiting' | 'budget' | 'alert')[];
  workspace?: string;
  project?: string;
}

/** POST workspaces. Who makes one is its first admin. */
export interface CreateWorkspace {
  name: string;
  description?: string;
}

/** Snapshot for a live view: experiment, trials and curves as of `cursor`; follow the stream from there. */
export interface CurvesView {
  cursor: number;
  experiment: ExperimentView;
  trials: TrialView[];
  curves: SeriesView[];
  attempts: AttemptSpan[];
  parents: ParentView[];
  next: number | null;
}

/** What a workspace gives to what is submitted into it: a config's own values come before them. */
export interface DefaultsView {
  resource_pool: string;
  checkpoint_storage: Record<string, unknown>;
  environment: Record<string, unknown>;
  task_container_defaults: Record<string, unknown>;
  template: string;
}

/** What is left of an experiment that is being deleted, or of the event files of one: files come before rows. */
export interface DeletionView {
  checkpoints: number;
  bytes: number;
  event_files: boolean;
  failure: string;
  retry_at: number | null;
  task: string | null;
}

/** D: what each source gave to each layer so far, as the trial measured it. */
export interface DepthView {
  steps_completed: number;
  layers: string[];
  shares: number[][];
  left_out: number;
}

/** One row of a comparison: `values` has one entry per compared version, null where it has none. */
export interface Difference {
  name: string;
  values: unknown[];
  same: boolean;
}

/** POST artifacts/{artifact}/edit. What is null stays as it is. */
export interface EditArtifact {
  description?: string | null;
  name?: string | null;
  workspace?: string | null;
}

/** POST artifacts/{artifact}/versions/{version}/edit. The files of a version never change. */
export interface EditArtifactVersion {
  comment?: string | null;
  set_metadata?: Record<string, unknown>;
  remove_metadata?: string[];
  add_aliases?: string[];
  remove_aliases?: string[];
}

/** POST experiments/{id}/edit. What is null stays as it is; the same edit again changes nothing. */
export interface EditExperiment {
  name?: string | null;
  description?: string | null;
  notes?: string | null;
  notes_before?: string | null;
  labels?: string[] | null;
  add_labels?: string[];
  remove_labels?: string[];
  archived?: boolean | null;
}

/** POST models/{model}/edit. What is null stays as it is; the same edit again changes nothing. */
export interface EditModel {
  name?: string | null;
  description?: string | null;
  notes?: string | null;
  notes_before?: string | null;
  metadata?: Record<string, unknown> | null;
  set_metadata?: Record<string, unknown>;
  remove_metadata?: string[];
  labels?: string[] | null;
  add_labels?: string[];
  remove_labels?: string[];
  archived?: boolean | null;
}

/** POST workspaces/{workspace}/projects/{project}/edit. What is null stays as it is. */
export interface EditProject {
  name?: string | null;
  description?: string | null;
  notes?: string | null;
  notes_before?: string | null;
  archived?: boolean | null;
}

/** POST models/{model}/versions/{version}/edit. */
export interface EditVersion {
  name?: string | null;
  comment?: string | null;
  notes?: string | null;
  notes_before?: string | null;
  metadata?: Record<string, unknown> | null;
  set_metadata?: Record<string, unknown>;
  remove_metadata?: string[];
  semver?: string | null;
}

/** POST workspaces/{workspace}/edit. What is null stays as it is; the same edit again changes nothing. */
export interface EditWorkspace {
  name?: string | null;
  description?: string | null;
  archived?: boolean | null;
  defaults?: WorkspaceDefaults | null;
}

/** GET instances. */
export interface ElasticPoolList {
  items: ElasticPoolView[];
}

/** An elastic pool. */
export interface ElasticPoolView {
  name: string;
  min_instances: number;
  max_instances: number;
  wanted: number;
  held_back: string;
  instances: InstanceView[];
  errors: ProviderErrorView[];
}

/** Where a user has alerts sent by e-mail. */
export interface EmailView {
  user: string;
  address: string;
  confirmed_at: number | null;
  set_by: string;
  pending: string;
  code_until: number | null;
  delivered: number;
  delivered_at: number | null;
  waiting: number;
  failed: number;
  error: string;
  offered: boolean;
}

/** Why a trial ended, for people; shown in views beside its state. */
export type EndReason = 'completed' | 'stopped' | 'canceled' | 'killed' | 'invalid_hp' | 'error' | 'no_metrics' | 'max_time';

/** Body of every non-2xx reply. */
export interface ErrorView {
  code: string;
  message: string;
  hint: string | null;
  problems: ProblemView[];
}

/** One line of the event stream (newline-delimited JSON). `id` is the cursor to resume after. */
export interface Event {
  id: number;
  kind: 'experiment' | 'trial' | 'task' | 'cluster' | 'metrics' | 'checkpoint' | 'model' | 'resync' | 'cursor';
  time: number;
  experiment_id: number | null;
  trial_id: number | null;
  task_id: string | null;
  data: Record<string, unknown>;
}

/** What a version of a model says of its evidence; None where its checkpoint has none. */
export interface EvidenceSummary {
  key_id: string;
  policy_hash: string;
  s_hash: string;
  enforce: string;
  ledger_index: number;
  ledger_hash: string;
  sources: SourceSummary[];
  privacy: PrivacySpent | null;
}

/** One page of experiments, newest first or in the order that was asked for. */
export interface ExperimentPage {
  items: ExperimentView[];
  columns: FoundColumn[];
  notes: string[];
  next: number | null;
}

/** Where an experiment stands (Determined's names). */
export type ExperimentState = 'ACTIVE' | 'PAUSED' | 'STOPPING_COMPLETED' | 'STOPPING_CANCELED' | 'STOPPING_KILLED' | 'STOPPING_ERROR' | 'COMPLETED' | 'CANCELED' | 'ERROR' | 'DELETING' | 'DELETED';

/** An experiment with the numbers its progress line needs. */
export interface ExperimentView {
  id: number;
  name: string;
  description: string | null;
  labels: string[];
  notes: string | null;
  owner: string;
  may: 'read' | 'write' | 'own';
  workspace: string;
  workspace_id: number | null;
  project: string;
  project_id: number | null;
  state: ExperimentState;
  searcher: string;
  metric: string;
  smaller_is_better: boolean;
  time_metric: string | null;
  max_time: number | null;
  progress: number;
  trials_total: number | null;
  trials: Record<string, number>;
  best: BestView | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  paused_at: number | null;
  paused_seconds: number;
  edited_at: number | null;
  archived_at: number | null;
  pending_reason: string | null;
  deletion: DeletionView | null;
  budgets: BudgetView[];
  cost: number | null;
  currency: string;
  search_task: string | null;
  warnings: string[];
  bundle: string | null;
  config: Record<string, unknown> | null;
  failure: FailureView | null;
  card: FailureView | null;
  log_retention_days: number | null;
  source: Record<string, unknown>;
  forked_from: number | null;
  unmanaged: boolean;
  governed: boolean;
  values: unknown[];
  shortened: string[];
}

/** A failure card: what, where, likely cause, last lines, next command. */
export interface FailureView {
  kind: string;
  message: string;
  trial_id: number | null;
  rank: number | null;
  exit_code: number | null;
  signal: string | null;
  where: string | null;
  node: string | null;
  log_tail: string[];
  hint: string | null;
  command: string | null;
}

/** A file of the code that is not the same in all compared versions; the diff is of the first two that have it. */
export interface FileDifference {
  path: string;
  digests: (string | null)[];
  diff: string;
}

/** What would happen to the first trial if a dry run had been a submit, by the code that schedules. */
export interface ForecastView {
  pool: string;
  agent_id: string | null;
  reason: string;
  detail: string;
}

/** A column that was asked for. */
export interface FoundColumn {
  name: string;
  kind: string;
}

/** A trial in a table over all experiments. */
export interface FoundTrial {
  id: number;
  experiment_id: number;
  index: number;
  name: string;
  owner: string;
  labels: string[];
  state: TrialState;
  end_reason: EndReason | null;
  hparams: Record<string, unknown>;
  steps_completed: number;
  restarts: number;
  progress: number;
  best_validation: Float | null;
  metric: string;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  values: unknown[];
  shortened: string[];
}

/** A page of trials. */
export interface FoundTrials {
  items: FoundTrial[];
  columns: FoundColumn[];
  notes: string[];
  next: number | null;
}

/** What collection decides about one checkpoint. */
export interface GcItem {
  uuid: string;
  trial_id: number;
  steps_completed: number;
  metric: number | null;
  size: number;
  keep: boolean;
  why: string[];
  pins: Pin[];
}

/** What an experiment keeps when it has ended (Determined's three numbers). */
export interface GcPolicy {
  save_experiment_best: number;
  save_trial_best: number;
  save_trial_latest: number;
}

/** What a policy would do to an experiment now, or what it has done; nothing is changed by asking. */
export interface GcPreview {
  experiment_id: number;
  policy: GcPolicy;
  items: GcItem[];
  left_out: number;
  going: number;
  staying: number;
  freed: number;
  kept: number;
  applied: boolean;
  trash_until: number | null;
}

/** A value of a config that its submitter has not given. */
export interface GivenView {
  path: string;
  value: unknown;
  source: string;
}

/** The grants of an experiment, users first. */
export interface GrantList {
  items: GrantView[];
}

/** A grant that stands. */
export interface GrantView {
  kind: 'user' | 'group';
  name: string;
  write: boolean;
  granted_by: string;
  created_at: number;
}

/** One part of the service. */
export interface HealthItem {
  name: string;
  ok: boolean;
  detail: string;
}

/** GET service [admin]: how the service is. */
export interface HealthView {
  ok: boolean;
  version: string;
  started_at: number;
  items: HealthItem[];
}

/** A change with which a task that waits would start now. */
export interface HintView {
  change: string;
  value: string;
  text: string;
}

/** A running trial or user task whose GPUs are at 0 %, as its agents measure or its profiler reports. */
export interface IdleGpuView {
  user: string;
  experiment_id: number | null;
  trial_id: number | null;
  task_id: string | null;
  slots: number;
  since: number;
}

/** A machine, or a process, that the master launched for an elastic pool. */
export interface InstanceView {
  id: string;
  agent_id: string;
  state: string;
  agent_state: string;
  launched_at: number;
  spot: boolean;
}

/** GET jobs: by pool, in the order of each. */
export interface JobList {
  items: JobView[];
  next: number | null;
}

/** POST jobs/{job_id}: what shall change. What is not named stays as it is. */
export interface JobUpdate {
  priority?: number | null;
  weight?: number | null;
  pool?: string | null;
  ahead_of?: string | null;
  behind_of?: string | null;
}

/** A job that holds slots or waits for some. */
export interface JobView {
  id: string;
  kind: string;
  name: string;
  owner: string;
  mine: boolean;
  pool: string;
  state: string;
  order: number;
  priority: number;
  weight: number;
  max_slots: number | null;
  slots_held: number;
  slots_wanted: number;
  tasks_waiting: number;
  submitted_at: number;
  moved: boolean;
  reason: string;
  estimated_start: number | null;
  shortened: string[];
}

/** GET jobs/{job_id}/why. */
export interface JobWhy {
  job: JobView;
  items: WaitView[];
  waiting: number;
  idle: IdleGpuView[];
}

/** An event of a search and what the search decided. */
export interface JournalEntry {
  seq: number;
  at: number | null;
  event: Record<string, unknown>;
  decisions: (Record<string, unknown>)[];
}

/** One move of a label: who, when and why. */
export interface LabelMove {
  id: number;
  label: string;
  from_version: number | null;
  to_version: number | null;
  by: string;
  at: number;
  reason: string;
}

/** The history of a model's labels, newest first. */
export interface LabelMoves {
  items: LabelMove[];
}

/** The newest value of a metric: that of the greatest step. */
export interface LastPoint {
  value: Float;
  step: number;
  time: number;
}

/** What each source may train in a trial, and what it gave so far. */
export interface LearningView {
  trial_id: number;
  s_hash: string;
  sources: string[];
  groups: MatrixGroup[];
  left_out: number;
  share: Record<string, number>;
  depth: DepthView | null;
  refusals: RefusalView[];
}

/** The limits of one user. */
export interface LimitList {
  items: LimitView[];
  exempt_users: string[];
}

/** A user who is at or near a limit, or has met it since the master started. */
export interface LimitUse {
  user: string;
  used: number | null;
  hits: number;
  last_hit: number | null;
}

/** What one user may ask for. */
export interface LimitView {
  name: string;
  setting: string;
  value: Float | null;
  most: number | null;
  unit: string;
  about: string;
  users: LimitUse[];
}

/** Where a version comes from, as recorded when it was registered; nothing of it changes later. */
export interface Lineage {
  experiment_id: number | null;
  experiment_name: string;
  trial_id: number | null;
  tracked_run: string;
  run: number | null;
  steps_completed: number | null;
  hyperparameters: Record<string, unknown>;
  metrics: Record<string, number>;
  metric: string;
  smaller_is_better: boolean;
  config: Record<string, unknown>;
  bundle_digest: string;
  environment: Record<string, string>;
  data: Record<string, string>;
  governed: EvidenceSummary | null;
  parents: string[];
  slots: number;
  device: string;
  submitter: string;
  started_at: number | null;
  ended_at: number | null;
}

/** `source` was made from, by or with `target`. */
export interface LineageEdge {
  source: string;
  target: string;
  label: string;
}

/** GET models/{model}/versions/{version}/lineage. */
export interface LineageGraph {
  nodes: LineageNode[];
  edges: LineageEdge[];
}

/** Something in a lineage graph. */
export interface LineageNode {
  id: string;
  kind: string;
  label: string;
  detail: string;
}

/** One line of a task's output. */
export interface LogLine {
  id: number;
  trial_id: number;
  task_id: string | null;
  run: number;
  rank: number | null;
  node: string | null;
  stdtype: 'stdout' | 'stderr' | 'launcher';
  level: string | null;
  time: number;
  text: string;
}

/** A line of the master's log. */
export interface MasterLogLine {
  id: number;
  at: number;
  level: string;
  logger: string;
  text: string;
}

/** GET master/logs. */
export interface MasterLogPage {
  items: MasterLogLine[];
  last: Float;
  dropped: number;
}

/** Neighbouring parameters of S with the same factors. */
export interface MatrixGroup {
  label: string;
  count: number;
  scales: number[];
  levels: string[];
}

/** The keys of a trial's media. */
export interface MediaKeyList {
  items: MediaKeyView[];
  next: number | null;
}

/** A key of a trial's media. */
export interface MediaKeyView {
  key: string;
  kind: string;
  count: number;
  bytes: number;
  first_step: number;
  last_step: number;
}

/** A page of objects, in the order of their steps. */
export interface MediaPage {
  items: MediaView[];
  next: string | null;
}

/** Steps at which a trial has logged media, in order. */
export interface MediaStepList {
  items: number[];
  next: number | null;
}

/** An object that a trial has logged, or a run. */
export interface MediaView {
  id: number;
  trial_id: number;
  run_id: string;
  step: number;
  key: string;
  place: number;
  kind: string;
  media_type: string;
  caption: string;
  size: number;
  width: number;
  height: number;
  time: number;
}

/** The members of a workspace, users first. */
export interface MemberList {
  items: MemberView[];
}

/** PUT workspaces/{workspace}/members: who gets which role; one they had before is replaced. */
export interface MemberRequest {
  kind: 'user' | 'group';
  name: string;
  role?: 'viewer' | 'editor' | 'admin';
}

/** A member of a workspace. */
export interface MemberView {
  kind: 'user' | 'group';
  name: string;
  role: 'viewer' | 'editor' | 'admin';
  added_by: string;
  created_at: number;
}

/** One page of models, newest first. */
export interface ModelList {
  items: ModelView[];
  after: number | null;
}

/** A registered model. */
export interface ModelView {
  id: number;
  name: string;
  owner: string;
  description: string;
  notes: string;
  metadata: Record<string, unknown>;
  labels: string[];
  archived: boolean;
  created_at: number;
  updated_at: number;
  versions: number;
  latest: number | null;
  moving: Record<string, number>;
  right: string;
  reference: string;
  workspace: string;
  workspace_id: number | null;
  shortened: string[];
}

/** POST experiments/{experiment_id}/move: where it is to lie, and so who sees it. */
export interface MoveExperiment {
  workspace?: string;
  project?: string;
  keep_storage?: boolean;
}

/** POST models/{model}/labels/{label}: give a label to a version, and take it from the one that had it. */
export interface MoveLabel {
  version: number | string;
  reason?: string;
  expected?: number | null;
  idempotency_key?: string | null;
}

/** POST models/{model}/move: where it is to lie, and so who sees it. */
export interface MoveModel {
  workspace?: string;
}

/** GET tasks/{task_id}/outputs. */
export interface OutputList {
  items: OutputView[];
  next: number | null;
}

/** A file that a task handed over (an executed notebook, the variables of a cell). */
export interface OutputView {
  name: string;
  size: number;
  digest: string;
  updated_at: number;
}

/** GET overview: what a panel starts from; `GET stream?after=cursor` continues from there. */
export interface OverviewView {
  cursor: number;
  me: UserView;
  cluster: ClusterView;
  experiments: ExperimentView[];
  tasks: TaskView[];
  queue: QueueItem[];
  agents: AgentView[];
}

/** From which trial's checkpoint a trial started. */
export interface ParentView {
  trial_id: number;
  parent_id: number;
  steps_completed: number;
}

/** A partition of a batch system: a set of its nodes with rules of its own. */
export interface Partition {
  name: string;
  default: boolean;
  up: boolean;
  time_limit: string;
  idle: number;
  allocated: number;
  other: number;
}

/** Why a checkpoint is not collected, whatever the policy says. */
export interface Pin {
  kind: 'resume' | 'search' | 'rung' | 'parent' | 'warm_start' | 'version' | 'evaluation' | 'bookmark';
  reason: string;
}

/** What a config may not go beyond. */
export interface PolicyConstraints {
  resources: ResourceLimits;
  priority_limit: number | null;
}

/** A line of a trial that a log policy was looking for; the first of each policy and agent. */
export interface PolicyMatch {
  name: string | null;
  pattern: string;
  action: string | null;
  agent_id: string | null;
  run: number;
  time: number;
  line: string;
}

/** A config policy; one that is not set has neither invariants nor constraints. */
export interface PolicyView {
  workload: 'experiment' | 'tasks';
  workspace: string;
  invariant_config: Record<string, unknown>;
  constraints: PolicyConstraints;
  set_by: string;
  set_at: number | null;
  warnings: ProblemView[];
}

/** GET pools: in the operator's order. */
export interface PoolList {
  items: PoolView[];
}

/** A resource pool: how it is scheduled, and how full it is. It names nothing of anybody. */
export interface PoolView {
  name: string;
  description: string;
  scheduler: string;
  preemption: boolean;
  fitting: string;
  heterogeneous: boolean;
  priority: number;
  patience: number;
  share_by: string;
  usage_half_life: number | null;
  min_run: number | null;
  evict_after: number | null;
  price: number;
  slots_per_device: number;
  enforces: string[];
  elastic: boolean;
  takes: string[];
  agents: number;
  agents_away: number;
  agents_closed: number;
  slots_total: number;
  slots_used: number;
  tasks_running: number;
  tasks_waiting: number;
  slots_waiting: number;
  batch: BatchSystemView | null;
}

/** What a training at the level `dp` has spent, since its weights were new, by its own accountant. */
export interface PrivacySpent {
  mechanism: string;
  epsilon: number;
  delta: number;
  target_epsilon: number;
  max_grad_norm: number;
  noise_multiplier: number;
  sample_rate: number;
  steps: number;
}

/** One mistake or warning, with where it is. */
export interface ProblemView {
  path: string;
  message: string;
  hint: string | null;
  level: 'error' | 'warning';
}

/** One page of projects, the oldest first. */
export interface ProjectList {
  items: ProjectView[];
  after: number | null;
}

/** A project of a workspace. */
export interface ProjectView {
  id: number;
  name: string;
  workspace_id: number;
  workspace: string;
  owner: string;
  description: string;
  notes: string;
  created_at: number;
  archived_at: number | null;
  experiments: number;
  runs: number;
  tasks: number;
  may: 'read' | 'write' | 'own';
  shortened: string[];
}

/** What a provider did not do. */
export interface ProviderErrorView {
  time: number;
  times: number;
  doing: string;
  trouble: string;
  message: string;
  hint: string;
}

/** One allocation that waits, in the order in which the scheduler looks at them. */
export interface QueueItem {
  allocation_id: string;
  place: number;
  kind: string;
  owner: string;
  mine: boolean;
  name: string;
  experiment_id: number | null;
  trial_id: number | null;
  task_id: string | null;
  pool: string;
  slots: number;
  priority: number;
  weight: number;
  requested_at: number;
  reason: string;
  shortened: string[];
}

/** GET queue. */
export interface QueueView {
  items: QueueItem[];
  next: number | null;
}

/** GET quotas: all to administrators, to others their own and those of their groups; users first. */
export interface QuotaList {
  items: QuotaView[];
  storage: StorageQuotaView[];
  workspaces: WorkspaceQuotaView[];
  costs: CostCapView[];
  currency: string;
}

/** A quota of slots that stands, and what is used of it. */
export interface QuotaView {
  kind: 'user' | 'group';
  name: string;
  slots: number;
  held: number;
  waiting: number;
  set_by: string;
  set_at: number;
}

/** POST alerts/read: marks alerts as read. */
export interface ReadAlerts {
  ids?: number[];
  upto?: number | null;
}

/** Of POST tasks: the checkpoint that a command of the master's reads with the rights of its owner. */
export interface ReadCheckpoint {
  uuid: string;
  paths?: string[];
}

/** One reason why training may not go on. */
export interface RefusalView {
  code: string;
  message: string;
}

/** POST models/{model}/labels/{label}/remove. */
export interface RemoveLabel {
  reason?: string;
  expected?: number | null;
}

/** A search at one of its events, computed from its journal. */
export interface ReplayedSearch {
  at: number;
  events: number;
  time: number | null;
  last: Record<string, unknown> | null;
  progress: number;
  trials_total: number;
  best: BestView | null;
  budgets: BudgetView[];
  standing: StandingView[];
  trials: ReplayedTrial[];
  over: boolean;
}

/** A trial as the search knew it at an event. */
export interface ReplayedTrial {
  id: number | null;
  index: number;
  request_id: string;
  hparams: Record<string, unknown>;
  point_due: boolean;
  state: 'waiting' | 'running' | 'paused' | 'stopping' | 'ended';
  why: string;
  parent: ParentView | null;
  best: Float | null;
  reports: number;
}

/** Limits of `resources`. */
export interface ResourceLimits {
  max_slots: number | null;
}

/** A version that a run has used or made. */
export interface RunArtifact {
  role: 'used' | 'logged';
  at: number;
  version: ArtifactVersionView;
}

/** GET runs/{run_id}/artifacts. */
export interface RunArtifactList {
  items: RunArtifact[];
  next: number | null;
}

/** GET comparison?trials=12,15&experiments=3&runs=ID: runs side by side, in parts. */
export interface RunComparison {
  runs: ComparedRun[];
  absent_trials: number[];
  absent_experiments: number[];
  absent_runs: string[];
  hyperparameters: Difference[];
  config: Difference[];
  metrics: RunMetric[];
  metrics_left_out: number;
  next: number | null;
}

/** The values of a metric, thinned so that its shape is that of all of them. */
export interface RunCurve {
  name: string;
  steps: number[];
  values: Float[];
  times: number[];
  total: number;
}

/** A part of the curves of a run, by name. */
export interface RunCurveList {
  items: RunCurve[];
  next: number | null;
}

/** GET comparison/curves?trials=12,15&runs=ID&name=loss: curves of several trials and runs, in parts. */
export interface RunCurves {
  items: ComparedSeries[];
  absent_trials: number[];
  absent_runs: string[];
  next: number | null;
}

/** A part of the files of a run, by path. */
export interface RunFileList {
  items: RunFileView[];
  next: number | null;
}

/** A file of a run: code, packages, or what it has logged. */
export interface RunFileView {
  path: string;
  size: number;
  updated_at: number;
}

/** A metric in all runs; null where one has not reported it. */
export interface RunMetric {
  group: string;
  name: string;
  values: (RunSummary | null)[];
  smaller_is_better: boolean | null;
}

/** A metric of one run; of several trials the means. */
export interface RunSummary {
  best: Float | null;
  last: Float | null;
  min: Float | null;
  max: Float | null;
  deviation: Float | null;
}

/** A run that no cluster started, or what MLflow's clients have logged into or below a trial. */
export interface RunView {
  id: string;
  key: string;
  name: string;
  owner: string;
  status: 'RUNNING' | 'SCHEDULED' | 'FINISHED' | 'FAILED' | 'KILLED';
  end_reason: string;
  workspace: string;
  project: string;
  project_id: number | null;
  experiment_id: number | null;
  group: string;
  job_type: string;
  notes: string;
  started_at: number;
  ended_at: number | null;
  heard_at: number | null;
  deleted: boolean;
  config: Record<string, string>;
  tags: Record<string, string>;
  may: 'read' | 'write' | 'own';
  shortened: string[];
  metrics: Record<string, LastPoint>;
  summary: Record<string, unknown>;
}

/** A page of runs, the newest first. */
export interface RunViewList {
  items: RunView[];
  next: number | null;
}

/** PUT saved-views: makes a view, or replaces the caller's view of this name. */
export interface SaveView {
  name: string;
  table: 'trials' | 'experiments';
  filter?: string;
  sort?: string[];
  columns?: string[];
  layout?: Record<string, unknown>;
  workspace?: string;
  project?: string;
}

/** A saved view. A column that is gone since stays in it, and has no values. */
export interface SavedView {
  id: number;
  name: string;
  table: 'trials' | 'experiments';
  filter: string;
  sort: string[];
  columns: string[];
  layout: Record<string, unknown>;
  owner: string;
  project_id: number | null;
  project: string;
  workspace: string;
  created_at: number;
  updated_at: number;
}

/** The views of the caller, and those of projects that they may read. */
export interface SavedViewList {
  items: SavedView[];
  next: number | null;
}

/** A page of schedules, the oldest first. */
export interface ScheduleList {
  items: ScheduleView[];
  next: number | null;
}

/** What becomes of a schedule next. */
export type ScheduleState = 'active' | 'paused' | 'disabled' | 'done';

/** A schedule. */
export interface ScheduleView {
  id: number;
  name: string;
  owner: string;
  state: ScheduleState;
  reason: string;
  workspace: string;
  workspace_id: number | null;
  project: string;
  project_id: number | null;
  cron: string;
  time_zone: string;
  after_experiment: number | null;
  after_task: string | null;
  next_at: number | null;
  next_times: number[];
  runs: number;
  skipped: number;
  last_task: string | null;
  last_task_state: TrialState | null;
  last_due_at: number | null;
  last_started_at: number | null;
  note: string;
  noted_at: number | null;
  notebook: string | null;
  parameters: Record<string, unknown>;
  config: Record<string, unknown> | null;
  created_at: number;
  shortened: string[];
}

/** One curve, possibly down-sampled: extremes and the last point are exact. */
export interface SeriesView {
  trial_id: number;
  group: string;
  name: string;
  steps: number[];
  values: Float[];
  times: number[];
  total: number;
}

/** POST alerts/rules: tells the caller when something happens to experiments that they may read. */
export interface SetAlertRule {
  kind: 'completed' | 'failed' | 'improved' | 'plateau' | 'waiting' | 'budget' | 'alert' | 'log';
  amount?: number | null;
  pattern?: string;
  experiment_id?: number | null;
  workspace?: string;
  project?: string;
  bell?: boolean;
  webhook?: number | null;
  email?: boolean;
}

/** PUT alerts/email: has a code sent to an address of the caller. */
export interface SetEmail {
  address: string;
}

/** PUT config-policies: the whole policy, replaced. It ends nothing that runs. */
export interface SetPolicy {
  workload: 'experiment' | 'tasks';
  workspace?: string;
  invariant_config?: Record<string, unknown>;
  constraints?: AskedConstraints;
}

/** PUT templates: one of this name in the same place is replaced. */
export interface SetTemplate {
  name: string;
  workspace?: string;
  config?: Record<string, unknown> | null;
  config_yaml?: string | null;
  base?: string;
  description?: string;
  create?: boolean;
}

/** POST me/settings: changes those settings of the caller that are named. */
export interface SetUserSettings {
  theme?: 'system' | 'light' | 'dark' | null;
  time_zone?: string | null;
  bell?: boolean | null;
  email?: boolean | null;
}

/** One slot of an agent. */
export interface SlotView {
  id: string;
  kind: 'cpu' | 'cuda' | 'rocm';
  name: string;
  uuid: string | null;
  allocation_id: string | null;
  enabled: boolean;
  note: string;
  memory: number;
  device: string;
  shares: number;
}

/** A source, as a policy declares it, and how much of it was trained on. */
export interface SourceSummary {
  name: string;
  license: string;
  manifest: string | null;
  expires: string | null;
  samples: number;
  reached: boolean;
  level: string;
}

/** How many trials are where, at one rung, round or generation of a search. */
export interface StandingView {
  where: string;
  counts: Record<string, number>;
}

/** POST experiments/{id}/search: one act; each act has the fields that it names, and leaves the others alone. */
export interface SteerSearch {
  act: 'extend' | 'add' | 'retry' | 'bounds' | 'concurrency' | 'stop' | 'promote' | 'code' | 'metric';
  trials?: number;
  units?: number;
  points?: (Record<string, unknown>)[];
  hyperparameters?: Record<string, unknown> | null;
  limit?: number | null;
  trial_ids?: number[];
  bundle?: string | null;
  metric?: string;
  idempotency_key?: string | null;
}

/** The experiment after an act. */
export interface SteeredExperiment {
  id: number;
  name: string;
  description: string | null;
  labels: string[];
  notes: string | null;
  owner: string;
  may: 'read' | 'write' | 'own';
  workspace: string;
  workspace_id: number | null;
  project: string;
  project_id: number | null;
  state: ExperimentState;
  searcher: string;
  metric: string;
  smaller_is_better: boolean;
  time_metric: string | null;
  max_time: number | null;
  progress: number;
  trials_total: number | null;
  trials: Record<string, number>;
  best: BestView | null;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  paused_at: number | null;
  paused_seconds: number;
  edited_at: number | null;
  archived_at: number | null;
  pending_reason: string | null;
  deletion: DeletionView | null;
  budgets: BudgetView[];
  cost: number | null;
  currency: string;
  search_task: string | null;
  warnings: string[];
  bundle: string | null;
  config: Record<string, unknown> | null;
  failure: FailureView | null;
  card: FailureView | null;
  log_retention_days: number | null;
  source: Record<string, unknown>;
  forked_from: number | null;
  unmanaged: boolean;
  governed: boolean;
  values: unknown[];
  shortened: string[];
  promoted_to: number | null;
}

/** A quota of bytes that stands, and what is used of it. */
export interface StorageQuotaView {
  kind: 'user' | 'group';
  name: string;
  storage: number;
  used: number;
  set_by: string;
  set_at: number;
}

/** GET storage/usage?by=user|group|project|experiment. */
export interface StorageUsage {
  by: 'user' | 'group' | 'project' | 'experiment';
  items: StorageUse[];
  total: StorageUse;
  more: number;
  warnings: string[];
}

/** Bytes of one user, group, project or experiment. */
export interface StorageUse {
  name: string;
  experiment_id: number | null;
  owner: string;
  checkpoints: number;
  checkpoint_bytes: number;
  trash_bytes: number;
  other_bytes: number;
  freed_bytes: number;
  used: number;
  limit: number | null;
}

/** Summary of one scalar series; min, max and mean skip NaN. */
export interface SummaryView {
  count: number;
  min: Float | null;
  max: Float | null;
  mean: Float | null;
  last: Float | null;
  last_step: number | null;
  nan_count: number;
}

/** Why a user task ended. */
export type TaskEnd = 'completed' | 'failed' | 'killed' | 'idle' | 'canceled' | 'abandoned' | 'lost' | 'max_time';

/** What a user task is. */
export type TaskKind = 'notebook' | 'shell' | 'command' | 'tensorboard' | 'cell' | 'notebook_run';

/** GET tasks: newest first. */
export interface TaskPage {
  items: TaskView[];
  next: string | null;
}

/** Where a task comes from, as the client that asks for it says: for people, and for the cards of failures. */
export interface TaskSource {
  client?: string;
  notebook?: string | null;
  cell_id?: string | null;
  where?: string;
  parameters?: Record<string, unknown>;
  cells?: Record<string, unknown>;
}

/** A user task. */
export interface TaskView {
  id: string;
  kind: TaskKind;
  name: string;
  owner: string;
  workspace: string;
  workspace_id: number | null;
  project: string;
  project_id: number | null;
  may: 'read' | 'write' | 'own';
  opens: boolean;
  state: TrialState;
  allocation_state: AllocationState | null;
  display_state: string;
  end_reason: TaskEnd | null;
  slots_needed: number;
  slots: string[];
  agent_id: string | null;
  resource_pool: string;
  runtime: string;
  image: string | null;
  priority: number;
  server_name: string | null;
  url: string | null;
  server_host: string;
  created_at: number;
  started_at: number | null;
  ended_at: number | null;
  exit_code: number | null;
  stage_message: string;
  place: number | null;
  pending_reason: string | null;
  last_activity: number | null;
  idle_timeout: number | null;
  cull_at: number | null;
  gpus_idle_since: number | null;
  gpus_released_at: number | null;
  experiment_ids: number[];
  trial_ids: number[];
  schedule_id: number | null;
  failure: FailureView | null;
  config: Record<string, unknown> | null;
  shortened: string[];
}

/** One page of templates, by their ids. */
export interface TemplateList {
  items: TemplateView[];
  after: number | null;
}

/** A template. */
export interface TemplateView {
  name: string;
  workspace: string;
  reference: string;
  owner: string;
  base: string;
  description: string;
  config: Record<string, unknown> | null;
  merged: Record<string, unknown> | null;
  version: number;
  set_by: string;
  set_at: number;
  default: boolean;
  warnings: ProblemView[];
}

/** One thing that happened to an experiment, for its events tab. */
export interface TimelineItem {
  time: number;
  what: string;
  trial_id: number | null;
  run: number | null;
  detail: string;
}

/** GET experiments/{experiment_id}/timeline: oldest first. */
export interface TimelineView {
  items: TimelineItem[];
}

/** GET tokens [admin]. */
export interface TokenList {
  items: TokenView[];
  next: number | null;
}

/** A token of detlab's own; its text is known to its holder alone. */
export interface TokenView {
  id: string;
  kind: string;
  subject: string;
  created_at: number;
  expires_at: number | null;
}

/** Where a trial stands; what its allocation does is in `AllocationState`. */
export type TrialState = 'ACTIVE' | 'PAUSED' | 'STOPPING_COMPLETED' | 'STOPPING_CANCELED' | 'STOPPING_KILLED' | 'STOPPING_ERROR' | 'COMPLETED' | 'CANCELED' | 'ERROR';

/** A trial. */
export interface TrialView {
  id: number;
  index: number;
  experiment_id: number;
  request_id: string;
  state: TrialState;
  allocation_state: AllocationState | null;
  display_state: string;
  end_reason: EndReason | null;
  hparams: Record<string, unknown>;
  point_due: boolean;
  seed: number;
  restarts: number;
  run: number;
  progress: number;
  status: string;
  steps_completed: number;
  best_validation: Float | null;
  latest_validation: Float | null;
  latest_checkpoint: string | null;
  agent_id: string | null;
  slots: string[];
  asked_by: string;
  asked_at: number | null;
  started_at: number | null;
  ended_at: number | null;
  worked: number | null;
  works_since: number | null;
  pending_reason: string | null;
  parent: ParentView | null;
  stop_evidence: string;
  would_stop: string[];
  warnings: string[];
  policy_matches: PolicyMatch[];
  attempts: AttemptView[];
  failure: FailureView | null;
  card: FailureView | null;
  summary: Record<string, Record<string, SummaryView>>;
  summary_left_out: number;
  metadata: Record<string, unknown>;
  shortened: string[];
}

/** How many alerts the caller has not read, counted up to 100. */
export interface UnreadAlerts {
  unread: number;
}

/** Slot time of one user on one day (UTC). */
export interface UsageRow {
  day: string;
  user: string;
  kind: string;
  slot_hours: number;
  cost: number;
}

/** GET usage?first=DAY&last=DAY (also as CSV by `Accept: text/csv`): admins see all, others themselves. */
export interface UsageView {
  first: string;
  last: string;
  items: UsageRow[];
  next: number | null;
  shares: UserShareView[];
  idle: IdleGpuView[];
  currency: string;
}

/** The settings of a user; what they have not set has its default. */
export interface UserSettings {
  theme: 'system' | 'light' | 'dark';
  time_zone: string;
  bell: boolean;
  email: boolean;
  chosen: ('theme' | 'time_zone' | 'bell' | 'email')[];
}

/** A user's share of a pool now. */
export interface UserShareView {
  pool: string;
  user: string;
  group: string;
  held: number;
  waiting: number;
  share: number;
  of: number;
  used: number;
  half_life: number;
}

/** Who the caller is and what the token may do. */
export interface UserView {
  name: string;
  scopes: string[];
  admin: boolean;
}

/** One page of versions, newest first, or best first. */
export interface VersionList {
  items: VersionView[];
  after: number | null;
}

/** A version of a model: a checkpoint with its lineage. */
export interface VersionView {
  model_id: number;
  model: string;
  model_reference: string;
  version: number;
  semver: string | null;
  labels: string[];
  name: string;
  comment: string;
  notes: string;
  metadata: Record<string, unknown>;
  owner: string;
  created_at: number;
  updated_at: number;
  checkpoint: string;
  checkpoint_state: string;
  size: number;
  manifest_digest: string;
  format: string;
  lineage: Lineage;
  withdrawn: string[];
  shortened: string[];
}

/** Why one task waits. */
export interface WaitView {
  trial_id: number | null;
  task_id: string | null;
  slots: number;
  pool: string;
  place: number;
  ahead: number;
  waiting_since: number;
  reason: string;
  detail: string;
  hints: HintView[];
  estimated_start: number | null;
}

/** The calls of a webhook, the newest first. */
export interface WebhookCallList {
  items: WebhookCallView[];
  next: number | null;
}

/** A call that is still to be sent, or was given up. */
export interface WebhookCallView {
  id: number;
  event: string;
  title: string;
  created_at: number;
  due_at: number | null;
  attempts: number;
  error: string;
}

/** The webhooks of the caller, or of everybody to administrators, the oldest first. */
export interface WebhookList {
  items: WebhookView[];
  next: number | null;
}

/** A webhook. */
export interface WebhookView {
  id: number;
  name: string;
  url: string;
  format: 'default' | 'slack' | 'teams' | 'apprise';
  owner: string;
  rules: AlertRuleView[];
  secret: string;
  delivered: number;
  delivered_at: number | null;
  waiting: number;
  failed: number;
  error: string;
  created_at: number;
}

/** The same, as admins set it. */
export interface WorkspaceDefaults {
  resource_pool?: string;
  checkpoint_storage?: Record<string, unknown>;
  environment?: Record<string, unknown>;
  task_container_defaults?: Record<string, unknown>;
  template?: string;
}

/** One page of workspaces, the oldest first. */
export interface WorkspaceList {
  items: WorkspaceView[];
  after: number | null;
}

/** A quota of slots of all that lies in a workspace, and what is used of it. */
export interface WorkspaceQuotaView {
  workspace_id: number;
  workspace: string;
  slots: number;
  held: number;
  waiting: number;
}

/** A workspace. */
export interface WorkspaceView {
  id: number;
  name: string;
  owner: string;
  personal: boolean;
  description: string;
  created_at: number;
  archived_at: number | null;
  may: 'read' | 'write' | 'own';
  role: 'viewer' | 'editor' | 'admin' | null;
  projects: number;
  experiments: number;
  models: number;
  runs: number;
  tasks: number;
  quota: number | null;
  defaults: DefaultsView;
  shortened: string[];
}
