/** What listens in the sandbox, asked again and again while somebody looks. */
import { useEffect, useState } from "react";
import type { Api } from "../../net/api";
import { errorText } from "../../net/http";
import type { Ports } from "../../protocol/ports";

const POLL_MILLISECONDS = 3000;

export interface PortsState {
  /** Null before the first answer. */
  readonly found: Ports | null;
  readonly error: string;
}

export function usePorts(api: Api, id: string): PortsState {
  const [state, setState] = useState<PortsState>({ found: null, error: "" });
  useEffect(() => {
    let over = false;
    let asking = false;
    const ask = () => {
      if (asking || document.visibilityState !== "visible") return;
      asking = true;
      api
        .ports(id)
        .then(
          (found) => {
            if (!over) setState({ found, error: "" });
          },
          (error: unknown) => {
            if (!over) setState((before) => ({ ...before, error: errorText(error) }));
          },
        )
        .finally(() => {
          asking = false;
        });
    };
    ask();
    const timer = window.setInterval(ask, POLL_MILLISECONDS);
    document.addEventListener("visibilitychange", ask);
    return () => {
      over = true;
      window.clearInterval(timer);
      document.removeEventListener("visibilitychange", ask);
    };
  }, [api, id]);
  return state;
}
