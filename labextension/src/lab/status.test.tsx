/** The status bar's item. */

import { act, screen, waitFor } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import { expect, it, vi } from 'vitest';

import { ApiError } from '../state/api';
import { show } from '../testing/app';
import { overview } from '../testing/fixtures';
import { StatusItem } from './StatusItem';

it('tells of free slots and my work, and in words that the connection is lost', async () => {
  const clicked = vi.fn();
  const { api } = show(<StatusItem onClick={clicked} />, { overview: overview() });
  const item = await screen.findByText('1/2 slots free · 3 active');
  await waitFor(() => expect(api.streams).toEqual(['stream']));
  act(() => api.fail('stream', new ApiError(0, { message: 'nothing was heard' })));
  await waitFor(() => expect(item.textContent).toBe('1/2 slots free · 3 active · ⚠ not connected'));
  expect(item.title).toBe('Connection lost: nothing was heard');
  await userEvent.click(item);
  expect(clicked).toHaveBeenCalledOnce();
});
