/** Notes of people in Markdown, drawn as elements of React: never as HTML. */

import { createElement, Fragment, memo, ReactElement, useMemo } from 'react';

import { visible } from '../common/text';
import { Block, Inline, markdownOf } from './marks';

/** `level`: that of the view's own heading; those of the text lie below it, without gaps whatever it begins with. */
export const Markdown = memo(function Markdown({ text, level = 1 }: { text: string; level?: number }): ReactElement {
  const blocks = useMemo(() => markdownOf(text), [text]);
  const levels = useMemo(() => [...new Set(blocks.flatMap(block => (block.kind === 'heading' ? [block.level] : [])))].sort(), [blocks]);
  return <div className="det-markdown"><Blocks items={blocks} levels={levels.length ? levels : [1]} level={level} /></div>;
});

interface Levels {
  /** That are used in the text. */
  levels: readonly number[];
  level: number;
}

function Blocks({ items, ...of }: Levels & { items: readonly Block[] }): ReactElement {
  return <>{items.map((block, i) => <One key={i} block={block} {...of} />)}</>;
}

function One({ block, ...of }: Levels & { block: Block }): ReactElement {
  switch (block.kind) {
    case 'heading':
      return createElement(`h${Math.min(of.level + 1 + Math.max(0, of.levels.indexOf(block.level)), 6)}`, { 'data-level': block.level }, <Inlines items={block.items} />);
    case 'paragraph':
      return <p><Inlines items={block.items} /></p>;
    case 'code':
      return <pre tabIndex={0}><code>{visible(block.text)}</code></pre>;
    case 'list': {
      const items = block.items.map((item, i) => <li key={i}><Item blocks={item} {...of} /></li>);
      return block.ordered ? <ol start={block.start}>{items}</ol> : <ul>{items}</ul>;
    }
    case 'quote':
      return <blockquote><Blocks items={block.items} {...of} /></blockquote>;
    case 'table':
      return (
        <div className="det-x-scroll" tabIndex={0} role="region" aria-label="Table in the notes">
          <table>
            <thead><tr>{block.head.map((cell, i) => <th key={i}><Inlines items={cell} /></th>)}</tr></thead>
            <tbody>{block.rows.map((row, i) => <tr key={i}>{row.map((cell, j) => <td key={j}><Inlines items={cell} /></td>)}</tr>)}</tbody>
          </table>
        </div>
      );
    case 'rule':
      return <hr />;
  }
}

/** An item of one paragraph stands without it, so that lists stay close. */
function Item({ blocks, ...of }: Levels & { blocks: readonly Block[] }): ReactElement {
  const [first, ...rest] = blocks;
  if (first?.kind !== 'paragraph') return <Blocks items={blocks} {...of} />;
  return <><Inlines items={first.items} /><Blocks items={rest} {...of} /></>;
}

function Inlines({ items }: { items: readonly Inline[] }): ReactElement {
  return (
    <>
      {items.map((item, i) => {
        switch (item.kind) {
          case 'text': return <Fragment key={i}>{visible(item.text)}</Fragment>;
          case 'code': return <code key={i}>{visible(item.text)}</code>;
          case 'link': return <a key={i} href={item.href} title={visible(item.href)} target="_blank" rel="noopener noreferrer nofollow"><Inlines items={item.items} /></a>;
          default: return createElement(item.kind, { key: i }, <Inlines items={item.items} />);
        }
      })}
    </>
  );
}
