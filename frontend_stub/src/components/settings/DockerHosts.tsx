/** The machines that sandboxes run on, where the server has several: how each is, and draining it. */
import { useCallback, useEffect, useState } from "react";
import { useLoading } from "../../app/hooks";
import { useServices } from "../../app/services";
import { ApiError, errorText } from "../../net/http";
import type { DockerHost } from "../../protocol/rest";

const LOOK_MILLISECONDS = 5000;
const GIGABYTE = 1024 ** 3;
const STATES: Readonly<Record<DockerHost["status"], string>> = {
  up: "In use",
  draining: "Drained",
  lost: "Not reachable",
};

function gigabytes(bytes: number): string {
  return (bytes / GIGABYTE).toFixed(bytes < 10 * GIGABYTE ? 1 : 0);
}

function since(host: DockerHost): string {
  const at = new Date(host.since);
  return Number.isNaN(at.getTime()) ? "" : ` since ${at.toLocaleString([], { dateStyle: "medium", timeStyle: "short" })}`;
}

interface MeterProps {
  readonly label: string;
  readonly text: string;
  readonly value: number;
  readonly most: number;
}

function Meter({ label, text, value, most }: MeterProps) {
  const share = most > 0 ? Math.min(1, value / most) : 0;
  return (
    <div className={share >= 0.9 ? "host-meter high" : "host-meter"}>
      <span className="host-meter-label">{label}</span>
      <span className="host-meter-text">{text}</span>
      <span
        className="host-meter-track"
        role="meter"
        aria-label={label}
        aria-valuemin={0}
        aria-valuemax={100}
        aria-valuenow={Math.round(share * 100)}
        aria-valuetext={text}
      >
        <span className="host-meter-fill" style={{ inlineSize: `${share * 100}%` }} />
      </span>
    </div>
  );
}

function Host({ host, onDrain }: { readonly host: DockerHost; readonly onDrain: (draining: boolean) => void }) {
  const drained = host.status === "draining";
  const taken = host.memory - host.memory_free;
  return (
    <li className={`host host-${host.status}`} data-testid="docker-host" data-status={host.status}>
      <div className="host-head">
        <span className="host-dot" aria-hidden="true" />
        <strong className="host-name">{host.name}</strong>
        <span className="host-state" title={`${STATES[host.status]}${since(host)}`}>
          {STATES[host.status]}
        </span>
        {host.status !== "lost" && (
          <button
            type="button"
            className="link-button"
            data-testid="docker-host-drain"
            aria-label={drained ? `Use ${host.name} again` : `Drain ${host.name}`}
            onClick={() => {
              onDrain(!drained);
            }}
          >
            {drained ? "Use again" : "Drain"}
          </button>
        )}
      </div>
      <p className="host-facts">
        <code>{host.url}</code>
        {host.version !== "" && <span>Docker {host.version}</span>}
        {host.processors > 0 && <span>{host.processors} processors</span>}
        {host.status !== "lost" && !host.has_image && <span className="host-lacks">lacks the sandbox image</span>}
      </p>
      {host.status === "lost" ? (
        <p className="host-reason" role="status">
          {host.reason} Its {host.sandboxes === 1 ? "sandbox waits" : `${String(host.sandboxes)} sandboxes wait`} for it;
          new ones are made elsewhere.
        </p>
      ) : (
        <div className="host-meters">
          <Meter
            label="Memory"
            text={`${gigabytes(host.memory_free)} of ${gigabytes(host.memory)} GB free for sandboxes`}
            value={taken}
            most={host.memory}
          />
          <Meter
            label="Sandboxes"
            text={`${String(host.sandboxes)} of ${String(host.max_sandboxes)} run`}
            value={host.sandboxes}
            most={host.max_sandboxes}
          />
        </div>
      )}
    </li>
  );
}

export function DockerHosts() {
  const { api, toasts } = useServices();
  const [hosts, setHosts] = useState<readonly DockerHost[]>([]);
  const [failure, setFailure] = useState("");

  const load = useCallback(async () => {
    try {
      setHosts(await api.dockerHosts());
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 403)) throw error; // they are an administrator's to see
    }
  }, [api]);
  const problem = useLoading(load);

  const some = hosts.length > 0;
  useEffect(() => {
    if (!some) return;
    const timer = window.setInterval(() => void load().catch(() => undefined), LOOK_MILLISECONDS);
    return () => {
      window.clearInterval(timer);
    };
  }, [some, load]);

  const drain = async (host: DockerHost, draining: boolean) => {
    setFailure("");
    try {
      await api.drainDockerHost(host.name, draining);
      await load();
      toasts.done(draining ? `${host.name} takes no new sandboxes; what runs there goes on.` : `${host.name} is in use again.`);
    } catch (error) {
      setFailure(errorText(error));
    }
  };

  const told = failure || (some ? "" : problem);
  if (!some && told === "") return null;
  return (
    <section className="panel" aria-labelledby="settings-hosts" data-testid="docker-hosts">
      <h2 id="settings-hosts">Docker hosts</h2>
      <p className="panel-note">
        The machines that sandboxes run on. A new one goes where there is memory and its image, and stays there. A drained
        machine takes no new ones.
      </p>
      <ul className="host-list">
        {hosts.map((host) => (
          <Host key={host.name} host={host} onDrain={(draining) => void drain(host, draining)} />
        ))}
      </ul>
      {told !== "" && (
        <p className="form-error" role="alert" data-testid="docker-hosts-error">
          {told}
        </p>
      )}
    </section>
  );
}
