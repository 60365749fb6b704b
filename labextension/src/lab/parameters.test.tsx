/** A notebook's parameters: the current YAML arrives, or is said to be wrong; nothing is dropped. */

import { screen, waitFor, within } from '@testing-library/react';
import userEvent from '@testing-library/user-event';
import axe from 'axe-core';
import { describe, expect, it, vi } from 'vitest';

import { ApiError } from '../state/api';
import { show } from '../testing/app';
import { overview } from '../testing/fixtures';
import type { LabApi } from './api';
import { FormTab } from './tabs/FormTab';
import { parametersOf } from './parameters';

describe('the lines', () => {
  it('give numbers, true, false, null, other JSON and text', () => {
    const text = 'lr = 3\n\n  deep=true\nnone = null\nname = a = b\nlayers = [1, 2]\nempty = ""\nβ_1 = 1e-3\r\n';
    expect(parametersOf(text)).toEqual({
      values: { lr: 3, deep: true, none: null, name: 'a = b', layers: [1, 2], empty: '', β_1: 0.001 }, problems: []
    });
    expect(parametersOf("deep = True\nnone = None\noptimizer = 'adam'").values).toEqual({ deep: true, none: null, optimizer: 'adam' });
    expect(parametersOf(' \n\n')).toEqual({ values: {}, problems: [] });
  });

  it('are each a mistake with its number when they set nothing, or not what they seem to', () => {
    const { values, problems } = parametersOf('lr: 3\nseed = 1\n\nnonsense\n= 4\na b = 1\n# lr = 2\nseed = 2\nx =');
    expect(values).toEqual({ seed: 1 });
    expect(problems.map(p => [p.message, p.hint])).toEqual([
      ['line 1: has no `=`', 'write `lr = 3`'],
      ['line 4: has no `=`', 'write `name = value`'],
      ['line 5: has no name before the `=`', 'write `name = value`'],
      ['line 6: `a b` is not a valid variable name', 'write `name = value`'],
      ['line 7: `# lr` is not a valid variable name', 'write `name = value`'],
      ['line 8: `seed` is already set above', 'keep one of the lines'],
      ['line 9: `x` has no value', 'write `x = ""` for an empty text']
    ]);
    expect(new Set(problems.map(p => `${p.path} ${p.level}`))).toEqual(new Set(['parameters error']));
  });
});

describe('the form of a notebook run', () => {
  const schema = { properties: { description: { type: 'string' }, resources: { properties: { slots: { type: 'integer' } } } } };
  const own = async (path: string): Promise<unknown> =>
    path === 'code' ? { bundle: null, files: ['report.ipynb'], size: 10 } : { problems: [], config: {} };

  it('says which line cannot be used at the field and in the list, and runs only when all can', async () => {
    const submit = vi.fn(async () => undefined);
    const chosen = { kind: 'notebook_run' as const, path: 'a/report.ipynb', folder: 'a', schema, text: null };
    const { container } = show(
      <FormTab chosen={chosen} api={{ own } as unknown as LabApi} pick={null} onFile={vi.fn()} submit={submit} />, { overview: overview() }
    );
    const field = screen.getByLabelText(/^Notebook parameters/);
    await screen.findByText('no errors');
    expect(field.getAttribute('aria-invalid')).toBeNull();
    await userEvent.type(field, 'seed = 7{Enter}lr: 3');
    const verdict = await screen.findByText('1 error');
    expect(verdict.getAttribute('role')).toBe('status');
    expect(field.getAttribute('aria-invalid')).toBe('true');
    expect(document.getElementById(field.getAttribute('aria-describedby')!)!.textContent).toBe('line 2: has no = (write lr = 3)');
    const run = screen.getByRole('button', { name: 'Run' });
    expect(run.getAttribute('aria-disabled')).toBe('true');
    await userEvent.click(run);
    expect(submit).not.toHaveBeenCalled();
    const list = screen.getByRole('list', { name: 'Errors and warnings' });
    await userEvent.click(within(list).getByRole('button', { name: 'parameters' }));
    expect(document.activeElement).toBe(field);
    const found = await axe.run(container, { rules: { 'color-contrast': { enabled: false }, region: { enabled: false } } });
    expect(found.violations.map(v => `${v.id}: ${v.nodes[0]!.html}`)).toEqual([]);
    await userEvent.clear(field);
    await userEvent.type(field, 'seed = 7{Enter}lr = 3');
    await screen.findByText('no errors');
    await userEvent.click(run);
    await waitFor(() => expect(submit).toHaveBeenCalledTimes(1));
    expect(submit.mock.calls[0]).toMatchObject([{ code: 'server', body: { kind: 'notebook_run', parameters: { seed: 7, lr: 3 } } }]);
  });

  const judging = async (path: string, body?: unknown): Promise<unknown> => {
    if (path === 'code') return own(path);
    const wrong = 'lrr' in (body as { parameters: object }).parameters;
    const problem = { path: 'parameters', message: 'lrr: the notebook has no such parameter', hint: 'did you mean lr?', level: 'error' };
    return { problems: wrong ? [problem] : [], config: {}, parameters: [{ name: 'lr', type: 'float', default: '0.1' }] };
  };

  const opened = (submit: () => Promise<void>): void => {
    const chosen = { kind: 'notebook_run' as const, path: 'a/report.ipynb', folder: 'a', schema, text: null };
    show(<FormTab chosen={chosen} api={{ own: judging } as unknown as LabApi} pick={null} onFile={vi.fn()} submit={submit} />, { overview: overview() });
  };

  it('lists the parameters of the notebook, and says while typing which it does not have', async () => {
    opened(vi.fn());
    await screen.findByText('no errors');
    expect(screen.getByText('lr = 0.1').title).toBe('of type float');
    const field = screen.getByLabelText(/^Notebook parameters/);
    await userEvent.type(field, 'lrr = 2');
    await screen.findByText('1 error');
    await waitFor(() => expect(field.getAttribute('aria-invalid')).toBe('true'));
    expect(screen.getAllByText(/the notebook has no such parameter/)).toHaveLength(2);
    await userEvent.clear(field);
    await screen.findByText('no errors');
    expect(field.getAttribute('aria-invalid')).toBeNull();
  });

  it('does not say that there are no errors beside those of a refusal, until something is changed', async () => {
    opened(() => Promise.reject(new ApiError(422, { code: 'config.invalid', message: '1 parameter cannot be used' })));
    await screen.findByText('no errors');
    await userEvent.click(screen.getByRole('button', { name: 'Run' }));
    await screen.findByText(/1 parameter cannot be used/);
    expect(screen.getByText('refused').getAttribute('role')).toBe('status');
    expect(screen.queryByText('no errors')).toBeNull();
    await userEvent.type(screen.getByLabelText(/^Notebook parameters/), 'lr = 2');
    await screen.findByText('no errors');
    expect(screen.queryByText(/1 parameter cannot be used/)).toBeNull();
  });
});
