/** Lists of the hub page, most of them for administrators. */

export { Audit } from './Audit';
export { Dialog } from './Dialog';
export { AllWork } from './AllWork';
export { MasterLog } from './MasterLog';
export { Nodes } from './Nodes';
export { Go, View } from './parts';
export { Queue } from './Queue';
export { Quotas } from './Quotas';
export { Service } from './Service';
export { Tokens } from './Tokens';
export { Usage } from './usage/Usage';
