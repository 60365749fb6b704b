/** The filter of a table: what may come next is offered, and a mistake is shown with its place. */

import { KeyboardEvent, ReactElement, Ref, useEffect, useId, useLayoutEffect, useRef, useState } from 'react';

import { useApp } from '../../state/context';
import type { Completions } from '../../state/wire';
import { useLoaded } from '../common';
import { useSettled } from '../common/loading/useThrottled';
import { nameText, visible } from '../common/text';
import type { RunTable } from './request';

const WAIT_MS = 120;
const OFFERED = 12;
/** What the master takes. */
const MOST = 4000;

const KINDS: Record<string, string> = { column: 'field', hyperparameter: 'hyperparameter', metric: 'metric' };

export function FilterBox({ table, value, problem, onApply, inputRef }: {
  table: RunTable;
  value: string;
  /** What the master says of the filter that was applied. */
  problem: string | null;
  onApply(filter: string): void;
  inputRef: Ref<HTMLInputElement>;
}): ReactElement {
  const { api } = useApp();
  const id = useId();
  const [text, setText] = useState(value);
  const [cursor, setCursor] = useState<number | null>(null); // null: nothing is offered
  const [chosen, setChosen] = useState(-1);
  const box = useRef<HTMLInputElement | null>(null);
  useEffect(() => setText(value), [value]);
  // At once, before the next key is typed.
  const caret = useRef<number | null>(null);
  useLayoutEffect(() => {
    if (caret.current !== null) box.current?.setSelectionRange(caret.current, caret.current);
    caret.current = null;
  }, [text]);
  const asked = useSettled(cursor === null ? '' : `${cursor} ${text}`, WAIT_MS);
  const at = asked === '' ? null : Number(asked.slice(0, asked.indexOf(' ')));
  const query = at === null ? null : new URLSearchParams({ table, filter: asked.slice(asked.indexOf(' ') + 1), cursor: String(at) });
  const { data } = useLoaded<Completions>(query && `${query}`, signal => api.get(`filters/complete?${query}`, signal));
  const current = cursor !== null && asked === `${cursor} ${text}`;
  const items = current && data ? data.items.slice(0, OFFERED) : [];
  const open = cursor !== null && items.length > 0;
  useEffect(() => setChosen(-1), [data]);

  const place = (): void => setCursor(box.current?.selectionStart ?? text.length);
  const close = (): void => setCursor(null);
  const accept = (index: number): void => {
    const item = items[index];
    if (!item || !data || cursor === null) return;
    const before = text.slice(0, data.begin) + item.text;
    const gap = item.text === '(' ? '' : ' ';
    const next = before + gap + text.slice(cursor).trimStart();
    setText(next);
    setCursor(before.length + gap.length);
    caret.current = before.length + gap.length;
  };
  const apply = (): void => {
    close();
    onApply(text.trim());
  };
  const onKey = (event: KeyboardEvent): void => {
    if (event.nativeEvent.isComposing) return;
    switch (event.key) {
      case 'ArrowDown':
      case 'ArrowUp':
        event.preventDefault();
        if (!open) return place();
        return setChosen(now => ((now + 1 + (event.key === 'ArrowDown' ? 1 : items.length)) % (items.length + 1)) - 1);
      case 'Tab':
        if (open && !event.shiftKey && (chosen >= 0 || text.length > 0)) {
          event.preventDefault();
          accept(Math.max(chosen, 0));
        }
        return;
      case 'Enter':
        event.preventDefault();
        return open && chosen >= 0 && chosen < items.length ? accept(chosen) : apply();
      case 'Escape':
        event.stopPropagation();
        if (open) return close();
        return box.current?.blur(); // what was typed stays: whoever closes a list that is not there yet would lose it
    }
  };
  const said = problem !== null && text.trim() === value.trim() ? problem : null;
  return (
    <div className="det-run-filter">
      <input
        ref={element => {
          box.current = element;
          if (typeof inputRef === 'function') inputRef(element);
          else if (inputRef) (inputRef as { current: HTMLInputElement | null }).current = element;
        }}
        className="det-input det-mono" type="text" role="combobox" aria-label={`Filter ${table}`} aria-autocomplete="list" aria-expanded={open}
        aria-controls={`${id}-list`} aria-activedescendant={open && chosen >= 0 && chosen < items.length ? `${id}-${chosen}` : undefined}
        aria-invalid={said !== null} aria-describedby={said === null ? undefined : `${id}-problem`} maxLength={MOST} spellCheck={false} autoComplete="off"
        placeholder="accuracy > 0.9 and hparams.lr < 1e-3 and label = paper" value={text}
        onChange={event => { setText(event.target.value); setCursor(event.target.selectionStart ?? event.target.value.length); }}
        onFocus={place} onClick={place} onBlur={close} onKeyDown={onKey}
      />
      {text !== '' && (
        <button type="button" className="det-button det-compact det-run-clear" aria-label="Clear the filter" title="Clear the filter" onClick={() => { setText(''); onApply(''); }}>✕</button>
      )}
      <button type="button" className="det-button" onClick={apply}>Filter</button>
      <ul id={`${id}-list`} role="listbox" aria-label="What may come next" className="det-run-offers" hidden={!open}>
        {items.map((item, i) => (
          <li
            key={`${item.kind} ${item.text}`} id={`${id}-${i}`} role="option" aria-selected={i === chosen} className="det-run-offer"
            onPointerDown={event => { event.preventDefault(); accept(i); }}
          >
            <span className="det-mono det-ellipsis"><bdi>{nameText(item.text, 80)}</bdi></span>
            <span className="det-soft det-ellipsis">{[KINDS[item.kind], item.about].filter(Boolean).map(one => nameText(one!, 80)).join(': ')}</span>
          </li>
        ))}
      </ul>
      {said !== null && <Problem id={`${id}-problem`} text={said} />}
    </div>
  );
}

/** A mistake: the message is wrapped, the filter with the mark below its place is not. */
function Problem({ id, text }: { id: string; text: string }): ReactElement {
  const [message, ...marked] = visible(text).split('\n');
  return (
    <div id={id} className="det-run-problem" role="alert">
      <p>{message}</p>
      {marked.length > 0 && <pre>{marked.join('\n')}</pre>}
    </div>
  );
}
