/** Artifacts: named folders in versions, with their files, and what they were made of. */

export { ArtifactPage } from './ArtifactPage';
export { ArtifactsPage } from './ArtifactsPage';
export { ArtifactVersionPage } from './ArtifactVersionPage';
export { RunArtifacts, runOfTrial } from './RunArtifacts';
