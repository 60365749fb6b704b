/** What trials log beyond numbers: images, sound, tables, plots. */

export { MediaPane, type MediaColumn } from './MediaPane';
