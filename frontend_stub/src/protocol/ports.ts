/** The ports of a conversation's sandbox, as the server lists them. */
import type { Fields } from "./events";
import type { ListeningPort, Ports as SentPorts } from "./generated/rest";
import { booleanField, listField, numberField, objectField, stringField } from "./fields";

/** `url` opens the preview; it counts for some minutes. */
export type PortEntry = Pick<ListeningPort, "port" | "url"> & { readonly process: string; readonly command: string };

export interface Ports {
  /** False while there is no sandbox. */
  readonly running: boolean;
  /** "path": the previews are sandboxed documents of the server's own origin, and may have no origin in a frame either. */
  readonly mode: SentPorts["mode"];
  readonly ports: readonly PortEntry[];
}

function toEntry(value: unknown): PortEntry | null {
  const fields: Fields = objectField({ value }, "value") ?? {};
  const port = numberField(fields, "port");
  const url = stringField(fields, "url");
  // The server makes the address; anything but a web address would be a way to run a script here.
  if (port === null || !/^https?:\/\//.test(url)) return null;
  return { port, url, process: stringField(fields, "process"), command: stringField(fields, "command") };
}

export function toPorts(value: unknown): Ports {
  const fields: Fields = objectField({ value }, "value") ?? {};
  return {
    running: booleanField(fields, "running"),
    mode: stringField(fields, "mode") === "origin" ? "origin" : "path",
    ports: listField(fields, "ports")
      .map(toEntry)
      .filter((entry) => entry !== null),
  };
}
