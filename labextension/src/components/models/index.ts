/** The registry: models, their versions, comparison and lineage. */

export { ComparePage } from './versions/ComparePage';
export { Register } from './dialogs/Register';
export { ModelPage } from './ModelPage';
export { ModelsPage } from './ModelsPage';
export { ModelItems, useNewestModels } from './Section';
export { VersionPage } from './versions/VersionPage';
