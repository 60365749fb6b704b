/** What administrators see beside what everybody sees. */

export { Audit } from './Audit';
export { Dialog } from './Dialog';
export { AllWork } from './AllWork';
export { Nodes } from './Nodes';
export { Go, View } from './parts';
export { Queue } from './Queue';
export { Quotas } from './Quotas';
export { Service } from './Service';
export { Tokens } from './Tokens';
export { Usage } from './usage/Usage';
