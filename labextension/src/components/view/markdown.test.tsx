import { render } from '@testing-library/react';
import { describe, expect, test } from 'vitest';

import { Markdown } from './Markdown';
import { inlineOf, markdownOf, safeHref } from './marks';

const html = (text: string): string => render(<Markdown text={text} />).container.querySelector('.det-markdown')!.innerHTML;

describe('what people write', () => {
  test.each([
    ['# Title', '<h2 data-level="1">Title</h2>'],
    ['### Deep ###', '<h2 data-level="3">Deep</h2>'],
    ['## A\n#### B\n## C', '<h2 data-level="2">A</h2><h3 data-level="4">B</h3><h2 data-level="2">C</h2>'],
    ['two\nlines', '<p>two\nlines</p>'],
    ['**b** and *i* and ~~s~~ and `c*d*`', '<p><strong>b</strong> and <em>i</em> and <del>s</del> and <code>c*d*</code></p>'],
    ['__b__ and _i_', '<p><strong>b</strong> and <em>i</em></p>'],
    ['snake_case_name and 2 * 3 * 4', '<p>snake_case_name and 2 * 3 * 4</p>'],
    ['- a\n- b', '<ul><li>a</li><li>b</li></ul>'],
    ['3. a\n4. b', '<ol start="3"><li>a</li><li>b</li></ol>'],
    ['- a\n  - b\n\n  more\n- c', '<ul><li>a<ul><li>b</li></ul><p>more</p></li><li>c</li></ul>'],
    ['> said\n> *so*', '<blockquote><p>said\n<em>so</em></p></blockquote>'],
    ['a\n\n---\n\nb', '<p>a</p><hr><p>b</p>'],
    ['```py\nif a < b:\n  **x**\n```', '<pre tabindex="0"><code>if a &lt; b:\n  **x**</code></pre>'],
    ['```\nnever closed', '<pre tabindex="0"><code>never closed</code></pre>'],
    ['\\*not\\* and \\# this', '<p>*not* and # this</p>'],
    ['text\n# heading', '<p>text</p><h2 data-level="1">heading</h2>'],
    ['![plot](https://a.example/p.png) no! ![x', '<p><a href="https://a.example/p.png" title="https://a.example/p.png" target="_blank" rel="noopener noreferrer nofollow">plot</a> no! ![x</p>'],
    ['', '']
  ])('%j', (text, expected) => expect(html(text)).toBe(expected));

  test('a table has as many cells as its head', () => {
    const { container } = render(<Markdown text={'| a | b |\n|---|:-:|\n| 1 | `x` |\n| 2 |\n| 3 | 4 | 5 |'} />);
    expect([...container.querySelectorAll('tr')].map(row => [...row.children].map(cell => cell.textContent))).toEqual([
      ['a', 'b'], ['1', 'x'], ['2', ''], ['3', '4']
    ]);
  });

  test('links of the web and of mail are followed in a new tab, and say where they lead', () => {
    const { container } = render(<Markdown text={'[paper](https://arxiv.org/abs/1) <https://a.example/x> see https://b.example/y. [mail](mailto:a@b.example)'} />);
    const links = [...container.querySelectorAll('a')];
    expect(links.map(link => [link.textContent, link.getAttribute('href')])).toEqual([
      ['paper', 'https://arxiv.org/abs/1'], ['https://a.example/x', 'https://a.example/x'], ['https://b.example/y', 'https://b.example/y'], ['mail', 'mailto:a@b.example']
    ]);
    expect(links.every(link => link.target === '_blank' && link.rel.includes('noopener'))).toBe(true);
    expect(links[0]!.title).toBe('https://arxiv.org/abs/1');
  });
});

const HOSTILE = [
  '<script>window.hacked=1</script>', '<img src=x onerror="window.hacked=1">', '<a href="javascript:alert(1)">x</a>', '[x](javascript:alert(1))',
  '[x](JaVaScRiPt:alert(1))', '[x](java\tscript:alert(1))', '[x](&#106;avascript:alert(1))', '[x](data:text/html,<script>alert(1)</script>)',
  '[x](vbscript:msgbox)', '[x](//evil.example)', '[x](/services/detlab/api/v1/models)', '[x](https://detlab@evil.example/)', '![x](https://evil.example/p.png)',
  '<https://evil.example/" onmouseover="alert(1)>', '[x](https://a.example/"onclick="alert(1))', '`<b>`', '<!-- -->', '<iframe src=//evil.example>',
  '```html\n<script>alert(1)</script>\n```', '| <script> | b |\n|---|---|\n| <img src=x onerror=alert(1)> | 2 |', '> <svg onload=alert(1)>', '# <b>x</b>',
  '&lt;script&gt;', '[<img src=x onerror=alert(1)>](https://a.example)', '<style>*{display:none}</style>', '<details open ontoggle=alert(1)>'
];

test.each(HOSTILE)('%j runs nothing, loads nothing and leads nowhere else', text => {
  const { container } = render(<Markdown text={text} />);
  expect(container.querySelector('script, img, iframe, svg, style, object, details, form, input')).toBeNull();
  for (const element of container.querySelectorAll('*')) {
    const names = element.getAttributeNames();
    expect(names.filter(name => name.startsWith('on') || name === 'style' || name === 'src')).toEqual([]);
  }
  for (const link of container.querySelectorAll('a')) {
    expect(link.protocol).toMatch(/^(https?|mailto):$/);
    expect(link.username).toBe('');
  }
});

test('characters that reorder or hide text are made visible', () => {
  const text = render(<Markdown text={'ada\u202egnp.exe\u202c \u200b `\u2066x` [\u202ea](https://a.example/)'} />).container.textContent!;
  expect(text).not.toMatch(/[\u200b\u202c\u202e\u2066]/);
  expect(text).toContain('⟨U+202E⟩');
});

test('only addresses of the web and of mail are followed', () => {
  expect(safeHref('https://a.example/?q=1#x')).toBe('https://a.example/?q=1#x');
  for (const bad of ['javascript:1', 'data:,x', 'file:///etc/passwd', '/x', 'x', '', 'http://', 'blob:https://a/1', ' javascript:1', 'https://u:p@a.example']) {
    expect(safeHref(bad), bad).toBeNull();
  }
});

test.each([
  ['*', 100_000], ['**', 50_000], ['_a', 50_000], ['`', 100_000], ['`a', 50_000], ['[', 100_000], ['[a](', 25_000], ['<https://', 10_000], ['> ', 50_000], ['- ', 50_000],
  ['1. ', 33_000], ['|', 100_000], ['|-', 50_000], ['~~', 50_000], ['\\', 100_000], ['# ', 50_000], ['a\n', 50_000], ['- a\n  ', 16_000], ['*a **b ', 14_000],
  ['https://', 12_500], ['\n|-\n', 25_000], ['h', 100_000], ['![', 50_000], ['!', 100_000], ['- ', 100], ['- - > ', 15_000]
])('%j repeated is read in an instant', (part, times) => {
  const began = performance.now();
  markdownOf(part.repeat(times));
  expect(performance.now() - began).toBeLessThan(3000);
});

test('every text comes back whole, whatever marks it holds', () => {
  const words = (items: ReturnType<typeof inlineOf>): string => items.map(item => ('text' in item ? item.text : words(item.items))).join('');
  for (const text of ['a ** b', 'a_b', '* x', 'x [y', 'x] (z)', 'h', 'http:/x', '`', '``', '~', '<', '\\']) expect(words(inlineOf(text))).toBe(text);
});
