/** Files that a user drops or chooses, with the folders that they are in; and saving what was downloaded. */
import type { NamedFile } from "../../net/workspace";

const MOST_FILES = 5_000;

/** The files of a field for files or folders. */
export function chosenFiles(list: FileList | null): NamedFile[] {
  return [...(list ?? [])].map((file) => ({ path: file.webkitRelativePath || file.name, file }));
}

/** The dropped files, also those in dropped folders. */
export async function droppedFiles(transfer: DataTransfer): Promise<NamedFile[]> {
  const roots = [...transfer.items].map((item) => item.webkitGetAsEntry()).filter((entry) => entry !== null);
  if (roots.length === 0) return chosenFiles(transfer.files);
  const found: NamedFile[] = [];
  const waiting = [...roots];
  while (waiting.length > 0 && found.length < MOST_FILES) {
    const entry = waiting.shift();
    if (entry === undefined) break;
    const path = entry.fullPath.replace(/^\//, "");
    if (entry.isFile) found.push({ path, file: await fileOf(entry as FileSystemFileEntry) });
    else waiting.push(...(await entriesOf(entry as FileSystemDirectoryEntry)));
  }
  return found;
}

export function save(blob: Blob, name: string): void {
  const url = URL.createObjectURL(blob);
  const link = document.createElement("a");
  link.href = url;
  link.download = name;
  link.click();
  window.setTimeout(() => {
    URL.revokeObjectURL(url);
  }, 60_000);
}

export function sizeText(bytes: number): string {
  if (bytes < 1024) return `${bytes} B`;
  const units = ["KB", "MB", "GB", "TB"];
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value < 10 ? value.toFixed(1) : Math.round(value)} ${units[unit]}`;
}

function fileOf(entry: FileSystemFileEntry): Promise<File> {
  return new Promise((resolve, reject) => {
    entry.file(resolve, reject);
  });
}

async function entriesOf(entry: FileSystemDirectoryEntry): Promise<FileSystemEntry[]> {
  const reader = entry.createReader();
  const found: FileSystemEntry[] = [];
  for (;;) {
    const part = await new Promise<FileSystemEntry[]>((resolve, reject) => {
      reader.readEntries(resolve, reject);
    });
    if (part.length === 0 || found.length > MOST_FILES) return found;
    found.push(...part);
  }
}

const PICTURE = /\.(png|jpe?g|gif|webp|avif|bmp|ico)$/i;

/** Whether browsers draw it. SVG is shown as the text that it is. */
export function isPicture(path: string): boolean {
  return PICTURE.test(path);
}
