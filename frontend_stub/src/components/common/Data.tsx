/** Data as a person reads it: named values as a list, rows of them as a table, everything else as JSON. */
import type { Fields } from "../../protocol/events";
import { Visible } from "./Visible";

const MOST_ROWS = 200;
const MOST_COLUMNS = 12;

type Plain = string | number | boolean | null;

function isPlain(value: unknown): value is Plain {
  return value === null || typeof value === "string" || typeof value === "number" || typeof value === "boolean";
}

function isRecord(value: unknown): value is Fields {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

export function Json({ value }: { readonly value: unknown }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
    <pre className="file-text wrap" tabIndex={0} aria-label="Details">
      <code><Visible text={JSON.stringify(value, null, 2)} /></code>
    </pre>
  );
}

/** The columns of a list of records whose values are plain; null for anything that makes no table. */
export function columnsOf(value: unknown): readonly string[] | null {
  if (!Array.isArray(value) || value.length === 0 || value.length > MOST_ROWS) return null;
  const columns = new Set<string>();
  for (const row of value as readonly unknown[]) {
    if (!isRecord(row) || !Object.values(row).every(isPlain)) return null;
    for (const name of Object.keys(row)) columns.add(name);
  }
  return columns.size === 0 || columns.size > MOST_COLUMNS ? null : [...columns];
}

function shown(value: unknown): string {
  return isPlain(value) && value !== null ? String(value) : "";
}

function Table({ columns, rows }: { readonly columns: readonly string[]; readonly rows: readonly Fields[] }) {
  return (
    // eslint-disable-next-line jsx-a11y/no-noninteractive-tabindex -- a scrollable region must take focus
    <div className="file-text data-table prose" role="group" aria-label="Table" tabIndex={0}>
      <table>
        <thead>
          <tr>
            {columns.map((name) => (
              <th key={name} scope="col">
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {rows.map((row, index) => (
            <tr key={index}>
              {columns.map((name) => (
                <td key={name} dir="auto">{shown(row[name])}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

export function Data({ value }: { readonly value: unknown }) {
  const columns = columnsOf(value);
  if (columns !== null) return <Table columns={columns} rows={value as readonly Fields[]} />;
  if (!isRecord(value) || !Object.values(value).every(isPlain)) return <Json value={value} />;
  return (
    <dl className="facts">
      {Object.entries(value).map(([name, content]) => (
        <div key={name} className="fact">
          <dt>{name}</dt>
          <dd dir="auto"><Visible text={shown(content)} /></dd>
        </div>
      ))}
    </dl>
  );
}

/** The data in a text that is JSON of more than one plain value; undefined for any other text. */
export function dataIn(text: string): unknown {
  if (!/^\s*[[{]/.test(text)) return undefined;
  try {
    return JSON.parse(text) as unknown;
  } catch {
    return undefined;
  }
}
