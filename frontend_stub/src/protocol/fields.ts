/** Safe reading of untyped JSON fields: a wrong or missing value becomes the neutral one. */
import type { Fields, TaskItem } from "./events";

export function stringField(fields: Fields, name: string): string {
  const value = fields[name];
  return typeof value === "string" ? value : "";
}

export function numberField(fields: Fields, name: string): number | null {
  const value = fields[name];
  return typeof value === "number" && Number.isFinite(value) ? value : null;
}

export function booleanField(fields: Fields, name: string): boolean {
  return fields[name] === true;
}

export function objectField(fields: Fields, name: string): Fields | null {
  const value = fields[name];
  return typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Fields) : null;
}

export function listField(fields: Fields, name: string): readonly unknown[] {
  const value = fields[name];
  return Array.isArray(value) ? (value as readonly unknown[]) : [];
}

export function stringListField(fields: Fields, name: string): readonly string[] {
  return listField(fields, name).filter((entry) => typeof entry === "string");
}

export function objectListField(fields: Fields, name: string): readonly Fields[] {
  return listField(fields, name).filter(
    (entry): entry is Fields => typeof entry === "object" && entry !== null && !Array.isArray(entry),
  );
}

export function taskListField(fields: Fields): readonly TaskItem[] {
  return objectListField(fields, "task_list").map((task, index) => ({
    id: stringField(task, "id") || String(index),
    title: stringField(task, "title"),
    status: stringField(task, "status") || "todo",
    notes: stringField(task, "notes"),
  }));
}
