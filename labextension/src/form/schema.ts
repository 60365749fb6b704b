/** From a JSON Schema to the fields of a form. Pure: the master validates. */

export interface Schema {
  type?: string | string[];
  $ref?: string;
  $defs?: Record<string, Schema>;
  properties?: Record<string, Schema>;
  required?: string[];
  anyOf?: Schema[];
  oneOf?: Schema[];
  items?: Schema;
  enum?: unknown[];
  const?: unknown;
  default?: unknown;
  title?: string;
  description?: string;
  deprecated?: boolean;
  minimum?: number;
  maximum?: number;
  'x-needed-to-submit'?: boolean;
  /** Choices that are not available now, and why; set by the host, not the master. */
  'x-closed'?: Partial<Record<string, string>>;
}

export type Path = readonly (string | number)[];
export type FieldKind = 'text' | 'integer' | 'number' | 'boolean' | 'choice' | 'words' | 'yaml';

export interface FieldSpec {
  path: Path;
  label: string;
  kind: FieldKind;
  about: string;
  needed: boolean;
  /** Of a choice. */
  choices: string[];
  /** Of a choice: the options not available now, and why. */
  closed?: Partial<Record<string, string>>;
  /** The default as text, "" if there is none. */
  standard: string;
}

/** The path as the master writes it: a.b[0].c */
export function renderPath(path: Path): string {
  return path.reduce<string>(
    (text, part) => (typeof part === 'number' ? `${text}[${part}]` : text ? `${text}.${part}` : part), ''
  );
}

/** Follow references and drop "or null". */
export function resolve(root: Schema, schema: Schema): Schema {
  let found = schema;
  for (let i = 0; i < 8; i++) {
    if (found.$ref) {
      const target = root.$defs?.[found.$ref.split('/').pop()!];
      if (!target) return {};
      const { $ref: _, ...rest } = found;
      found = { ...target, ...rest };
    } else if (found.anyOf && found.anyOf.filter(m => m.type !== 'null').length === 1) {
      const { anyOf, ...rest } = found;
      found = { ...anyOf!.find(m => m.type !== 'null')!, ...rest };
    } else break;
  }
  return found;
}

/** The member of a union that a `name` or `type` chooses, and all names there are. */
export function variant(root: Schema, schema: Schema, name: unknown): { names: string[]; chosen: Schema | null } {
  const members = (schema.oneOf ?? schema.anyOf ?? []).map(member => resolve(root, member));
  const named = members.flatMap(member => {
    const tag = member.properties?.['name']?.const ?? member.properties?.['type']?.const;
    return typeof tag === 'string' ? [{ tag, member }] : [];
  });
  return { names: named.map(n => n.tag), chosen: named.find(n => n.tag === name)?.member ?? null };
}

/**
 * The fields of an object's properties that one line can hold; deprecated keys are left to the YAML. In the order of
 * `only`, or what is needed first.
 */
export function fieldsOf(root: Schema, schema: Schema, base: Path, only?: readonly string[]): FieldSpec[] {
  const found: FieldSpec[] = [];
  const properties = resolve(root, schema).properties ?? {};
  for (const key of only ?? Object.keys(properties)) {
    const raw = properties[key];
    if (!raw || raw.deprecated || raw.const !== undefined) continue;
    const field = fieldOf(root, raw, [...base, key]);
    if (field.kind !== 'yaml') found.push(field);
  }
  return only ? found : found.sort((a, b) => Number(b.needed) - Number(a.needed));
}

function fieldOf(root: Schema, raw: Schema, path: Path): FieldSpec {
  const schema = resolve(root, raw);
  const { kind, choices } = kindOf(root, schema);
  const standard = raw.default ?? schema.default;
  return {
    path, kind, choices, closed: raw['x-closed'],
    label: String(path[path.length - 1]).replaceAll('_', ' '),
    about: raw.description ?? schema.description ?? '',
    needed: Boolean(raw['x-needed-to-submit']),
    standard: standard === undefined || standard === null || typeof standard === 'object' ? '' : String(standard)
  };
}

function kindOf(root: Schema, schema: Schema): { kind: FieldKind; choices: string[] } {
  if (schema.enum) return { kind: 'choice', choices: schema.enum.map(String) };
  const members = schema.oneOf ?? schema.anyOf;
  if (members) {
    // A shorthand beside the full form: what a text or number can say fits in one line.
    const kinds = members.map(member => kindOf(root, resolve(root, member)).kind);
    const plain = kinds.find(kind => kind !== 'yaml' && kind !== 'words');
    return { kind: plain ?? (kinds.includes('words') ? 'words' : 'yaml'), choices: [] };
  }
  switch (schema.type) {
    case 'string': return { kind: 'text', choices: [] };
    case 'integer': return { kind: 'integer', choices: [] };
    case 'number': return { kind: 'number', choices: [] };
    case 'boolean': return { kind: 'boolean', choices: [] };
    case 'array':
      return { kind: schema.items && resolve(root, schema.items).type === 'string' ? 'words' : 'yaml', choices: [] };
  }
  return { kind: 'yaml', choices: [] };
}
