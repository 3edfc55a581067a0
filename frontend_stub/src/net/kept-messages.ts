/** Messages that are not delivered yet, and drafts: kept for the tab, so that a reload loses none. */
import { objectField, stringField } from "../protocol/fields";
import { tabShelf } from "./storage";

export interface KeptMessage {
  readonly key: string;
  readonly text: string;
  /** Why the server did not take it; empty while it may still be sent. */
  readonly refusal: string;
}

const KEY = /^[0-9a-f]{32}$/;

export function draftKey(conversationId: string): string {
  return `drydock.draft.${conversationId}`;
}

function pendingKey(conversationId: string): string {
  return `drydock.pending.${conversationId}`;
}

/** What is kept, as far as it makes sense. */
export function readKept(conversationId: string): readonly KeptMessage[] {
  return listIn(tabShelf.read(pendingKey(conversationId)) ?? "")
    .map((value) => objectField({ value }, "value") ?? {})
    .map((fields) => ({ key: stringField(fields, "key"), text: stringField(fields, "text"), refusal: stringField(fields, "refusal") }))
    .filter((message) => KEY.test(message.key) && message.text !== "");
}

export function writeKept(conversationId: string, messages: readonly KeptMessage[]): void {
  if (messages.length === 0) tabShelf.remove(pendingKey(conversationId));
  else tabShelf.write(pendingKey(conversationId), JSON.stringify(messages));
}

/** To be called when the conversation is gone. */
export function forgetConversation(conversationId: string): void {
  tabShelf.remove(draftKey(conversationId));
  tabShelf.remove(pendingKey(conversationId));
}

function listIn(text: string): readonly unknown[] {
  try {
    const value = JSON.parse(text) as unknown;
    return Array.isArray(value) ? value : [];
  } catch {
    return [];
  }
}
