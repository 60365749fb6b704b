/** The entry of the hub page. */

import 'uplot/dist/uPlot.min.css';
import '../../style/components.css';
import './hub.css';

import { createRoot } from 'react-dom/client';

import { HubApi } from './api';
import { App } from './App';
import { interceptLinks } from './links';
import { readPage } from './page';
import { Router } from './router';
import { followTheme } from './theme';

followTheme();
const page = readPage(document);
const router = new Router(page.base);
const root = document.getElementById('detlab')!;
interceptLinks(document.body, router);
createRoot(root).render(<App page={page} api={new HubApi(page)} router={router} />);
