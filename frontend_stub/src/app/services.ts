/** The long-lived parts of the page, made once and handed down. */
import { createContext, useContext } from "react";
import { Api } from "../net/api";
import { BASE_PATH } from "../net/base-path";
import { ConversationsKeeper } from "../net/conversations";
import { createRequest, passes } from "../net/http";
import type { Request } from "../net/http";
import { takeLink, takeShare, TokenKeeper } from "../net/token";
import { WorkspaceApi } from "../net/workspace";
import type { ServerConfig, Settings } from "../protocol/rest";
import { Cell } from "../state/store";
import { Toasts } from "./toasts";

export interface Services {
  readonly api: Api;
  readonly workspace: WorkspaceApi;
  readonly keeper: TokenKeeper;
  /** For what is loaded where users have accounts. */
  readonly accountsRequest: Request;
  /** The one-time link that the page was opened with; empty where there was none. */
  readonly link: string;
  /** The token of the link to a conversation that the page was opened with; empty where there was none. */
  readonly shareToken: string;
  /** Loads the page anew, as whoever is signed in now: nothing of anybody else is left in it. */
  readonly loadAnew: () => void;
  readonly conversations: ConversationsKeeper;
  readonly config: Cell<ServerConfig | null>;
  /** undefined: not loaded yet; null: nothing is stored on the server. */
  readonly settings: Cell<Settings | null | undefined>;
  readonly toasts: Toasts;
  /** First messages of conversations this page has just created, until the server echoes them. */
  readonly created: Map<string, string>;
}

export function createServices(): Services {
  const keeper = new TokenKeeper();
  keeper.takeFromAddress();
  const request = createRequest(keeper);
  const api = new Api(request);
  return {
    api,
    workspace: new WorkspaceApi(request, keeper),
    keeper,
    accountsRequest: request,
    link: takeLink(),
    shareToken: takeShare(),
    loadAnew: () => {
      window.location.assign(`${BASE_PATH}/`);
    },
    conversations: new ConversationsKeeper(api),
    config: new Cell<ServerConfig | null>(null),
    settings: new Cell<Settings | null | undefined>(undefined),
    toasts: new Toasts(),
    created: new Map(),
  };
}

const ASK_AGAIN_MILLISECONDS = 2_000;

/** Loads what the whole page shows. A failure leaves the defaults: the page works without both. */
export async function loadServerFacts(services: Services): Promise<void> {
  const [config] = await Promise.allSettled([services.api.config()]);
  if (config.status === "fulfilled") services.config.set(config.value);
  // A server that has just started is still finding out where commands will run; one that is away comes back.
  const isKnown = config.status === "fulfilled" ? config.value.DRYDOCK?.sandbox.provider !== "" : !passes(config.reason);
  if (!isKnown) window.setTimeout(() => void loadServerFacts(services), ASK_AGAIN_MILLISECONDS);
  const [settings] = await Promise.allSettled([loadSettings(services)]);
  if (settings.status === "fulfilled") services.settings.set(settings.value);
}

/** The stored settings; null, without asking for them, where the server has said that there are none. */
export async function loadSettings({ api, config }: Services): Promise<Settings | null> {
  return config.getSnapshot()?.DRYDOCK?.settings_stored === false ? null : api.settings();
}

export const ServicesContext = createContext<Services | null>(null);

export function useServices(): Services {
  const services = useContext(ServicesContext);
  if (services === null) throw new Error("useServices needs a ServicesContext above it");
  return services;
}
