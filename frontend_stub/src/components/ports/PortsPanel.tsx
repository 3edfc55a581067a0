/** The ports that something in the sandbox listens on, beside the conversation: opened in a tab, or shown here. */
import { useState } from "react";
import { useServices } from "../../app/services";
import type { PortEntry, Ports } from "../../protocol/ports";
import { CloseIcon } from "../common/icons";
import { usePanel } from "../common/usePanel";
import { usePorts } from "./usePorts";

interface PortsPanelProps {
  readonly id: string;
  readonly onClose: () => void;
}

/** What a program of the sandbox may do in a frame: nothing to this page. */
const POWERS = "allow-scripts allow-forms allow-popups allow-modals allow-downloads";
/** On a host of its own it may also keep what it stores there; under a path that would be this page's own origin. */
const POWERS_OF_AN_ORIGIN = `${POWERS} allow-same-origin allow-popups-to-escape-sandbox`;

interface Shown {
  readonly port: number;
  /** The address as it was when the frame was opened: newer ones would load it anew. */
  readonly url: string;
  readonly loads: number;
}

export function PortsPanel({ id, onClose }: PortsPanelProps) {
  const { found, error } = usePorts(useServices().api, id);
  const [shown, setShown] = useState<Shown | null>(null);
  const panel = usePanel(onClose);

  const show = (entry: PortEntry) => {
    setShown((before) => ({ port: entry.port, url: entry.url, loads: (before?.loads ?? 0) + 1 }));
  };

  return (
    <aside ref={panel} className="ports-panel" aria-label="Ports of the sandbox" tabIndex={-1} data-testid="ports-panel">
      <header className="ports-head">
        <h2>Ports</h2>
        <button type="button" className="icon-button small" aria-label="Close the ports" onClick={onClose}>
          <CloseIcon />
        </button>
      </header>
      {error !== "" && <p className="ports-note bad">{error}</p>}
      <PortList found={found} shown={shown?.port ?? null} onShow={show} />
      {shown !== null && found !== null && (
        <iframe
          key={`${shown.port} ${shown.loads}`}
          className="ports-frame"
          data-testid="ports-frame"
          title={`Preview of port ${shown.port}`}
          src={shown.url}
          sandbox={found.mode === "origin" ? POWERS_OF_AN_ORIGIN : POWERS}
          referrerPolicy="no-referrer"
        />
      )}
    </aside>
  );
}

interface PortListProps {
  readonly found: Ports | null;
  readonly shown: number | null;
  readonly onShow: (entry: PortEntry) => void;
}

function PortList({ found, shown, onShow }: PortListProps) {
  if (found === null) return null;
  if (!found.running) return <p className="ports-note">The sandbox is not running.</p>;
  if (found.ports.length === 0)
    return <p className="ports-note">Nothing listens yet. A server that the agent starts appears here.</p>;
  return (
    <ul className="ports-list">
      {found.ports.map((entry) => (
        <li key={entry.port} className="ports-entry" data-testid="port" data-port={entry.port}>
          <span className="ports-number">{entry.port}</span>
          <span className="ports-process" title={entry.command}>
            {entry.process || "a program"}
          </span>
          <button
            type="button"
            className="link-button"
            onClick={() => {
              onShow(entry);
            }}
          >
            {shown === entry.port ? "Reload" : "Show here"}
          </button>
          <a className="link-button" href={entry.url} target="_blank" rel="noopener noreferrer">
            Open in a tab
          </a>
        </li>
      ))}
    </ul>
  );
}
