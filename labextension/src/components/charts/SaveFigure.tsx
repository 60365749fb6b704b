/** The menu that saves a figure as SVG or PNG. */

import type { ReactElement } from 'react';

import { useOptionalApp } from '../../state/context';
import { Menu } from '../common/Action';
import { download, fileName, rasterised } from './save';
import { nameText } from '../common/text';
import type { Picture } from './svg';

export function SaveFigure({ name, picture }: {
  /** What it shows: the name of its file. */
  name: string;
  picture: () => Picture | null | Promise<Picture>;
}): ReactElement {
  const app = useOptionalApp();
  const save = async (kind: 'svg' | 'png'): Promise<void> => {
    const file = fileName(name, kind);
    try {
      const drawn = await picture();
      if (!drawn) return;
      download(kind === 'svg' ? new Blob([drawn.svg], { type: 'image/svg+xml' }) : await rasterised(drawn), file);
      app?.notify(`Saved ${file}`);
    } catch (problem) {
      app?.notify(nameText(`${file} was not made: ${problem instanceof Error ? problem.message : String(problem)}`, 600), 'bad');
    }
  };
  return (
    <Menu
      label={`Image of ${name}`}
      actions={() => [
        { key: 'png', label: 'Save as PNG', run: () => save('png') },
        { key: 'svg', label: 'Save as SVG', run: () => save('svg') }
      ]}
    >
      Image ▾
    </Menu>
  );
}
