/** The event by which the still picture of a search that has ended goes from the widget to JupyterLab's extension. */
export const STILL = 'detlab-still';
