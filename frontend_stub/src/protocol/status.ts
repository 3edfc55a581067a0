/** What status and error ids mean to a person: a short text, and what can be done. */

export interface Explanation {
  readonly title: string;
  readonly advice: string;
  /** The page that helps, when there is one. */
  readonly link: "settings" | null;
}

const EXPLANATIONS: Readonly<Record<string, Explanation>> = {
  STATUS$ERROR_LLM_AUTHENTICATION: {
    title: "The model provider refused the API key",
    advice: "Check the key and the model name in Settings, then send a message to go on.",
    link: "settings",
  },
  STATUS$ERROR_LLM_SERVICE_UNAVAILABLE: {
    title: "The model provider does not answer",
    advice: "Check the base URL in Settings, or wait a moment and try again.",
    link: "settings",
  },
  STATUS$ERROR_LLM_INTERNAL_SERVER_ERROR: {
    title: "The model provider failed",
    advice: "The fault is on its side. Try again in a moment.",
    link: null,
  },
  STATUS$ERROR_LLM_OUT_OF_CREDITS: {
    title: "The model account has run out of credit",
    advice: "Top it up with your provider, or choose another model in Settings.",
    link: "settings",
  },
  STATUS$ERROR_LLM_CONTENT_POLICY_VIOLATION: {
    title: "The model provider refused this content",
    advice: "Put the request in other words and send it again.",
    link: null,
  },
  CHAT_INTERFACE$AGENT_RATE_LIMITED_STOPPED_MESSAGE: {
    title: "The model provider limits how fast you may ask",
    advice: "Wait a minute, then resume.",
    link: null,
  },
  STATUS$GIT_PROVIDER_AUTHENTICATION_ERROR: {
    title: "The Git provider refused the credentials",
    advice: "Check the token you use for it.",
    link: "settings",
  },
  STATUS$ERROR: {
    title: "Something went wrong",
    advice: "Send a message to try again.",
    link: null,
  },
  STATUS$ERROR_RUNTIME_DISCONNECTED: {
    title: "The sandbox cannot be reached",
    advice: "Send a message to start it again.",
    link: null,
  },
  STATUS$ERROR_MEMORY: {
    title: "The workspace's facts could not be read",
    advice: "Send a message to try again.",
    link: null,
  },
  AGENT_ERROR$TOO_MANY_CONVERSATIONS: {
    title: "Waiting for its turn",
    advice: "As many of your conversations work as may at a time. It begins by itself.",
    link: null,
  },
  AGENT_ERROR$ACTION_TIMEOUT: {
    title: "The action took too long",
    advice: "The agent has been told and can go on.",
    link: null,
  },
  AGENT_ERROR$BAD_ACTION: {
    title: "The agent asked for something that cannot be done",
    advice: "It has been told and can try another way.",
    link: null,
  },
  AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_STOPPED: {
    title: "Not run",
    advice: "You stopped the agent first.",
    link: null,
  },
  AGENT_ERROR$ERROR_ACTION_NOT_EXECUTED_ERROR: {
    title: "Not run",
    advice: "An error stopped the agent first.",
    link: null,
  },
  CONFIGURATION$SETTINGS_NOT_FOUND: {
    title: "No settings are stored yet",
    advice: "Open Settings, choose a model and save.",
    link: "settings",
  },
};

const PROGRESS: Readonly<Record<string, string>> = {
  STATUS$BUILDING_RUNTIME: "Building the sandbox image",
  STATUS$STARTING_RUNTIME: "Starting the sandbox",
  STATUS$RUNTIME_STARTED: "Sandbox started",
  STATUS$SETTING_UP_WORKSPACE: "Setting up the workspace",
  STATUS$SETTING_UP_GIT_HOOKS: "Setting up git hooks",
  STATUS$READY: "Ready",
  STATUS$LLM_RETRY: "Retrying the model",
  STATUS$ERROR_STORAGE: "The server cannot store anything",
  STATUS$ERROR_DISK_RESERVE: "The server's disk is nearly full, and the sandbox is frozen",
  STATUS$HELD_BACK: "Held back",
  STATUS$WAITING_FOR_ENGINE: "Waiting for the Docker engine",
};

/** Work is wanted and does not begin yet: the text of such a status says why, and how many are before it. */
const WAITING: ReadonlySet<string> = new Set([
  "STATUS$WAITING_FOR_TURN",
  "STATUS$HELD_BACK",
  "AGENT_ERROR$TOO_MANY_CONVERSATIONS",
]);

export function isWaiting(id: string): boolean {
  return WAITING.has(id);
}

/** The two parts of why work waits: how things stand ("Third in line"), and why; empty where there is no more to say. */
export function waitingParts(text: string): readonly [string, string] {
  const end = text.indexOf(": ");
  return end < 0 ? [text, ""] : [text.slice(0, end), text.slice(end + 2)];
}

/** The start waits for the engine, which is away: the text of such a status says why. */
export const WAITING_FOR_ENGINE = "STATUS$WAITING_FOR_ENGINE";
/** The sandbox is frozen: the text of such a status says why. */
export const FROZEN = "STATUS$ERROR_DISK_RESERVE";

/** Whether work waits since the conversation may be what ends the server: its user can have it go on at once. */
export function isHeldBack(waiting: string): boolean {
  return waiting === PROGRESS.STATUS$HELD_BACK;
}

/** The explanation of an id, or null for an id or free text that has none. */
export function explain(id: string): Explanation | null {
  return EXPLANATIONS[id] ?? null;
}

/** A short label for a runtime status; the id itself in plain words when it is unknown. */
export function progressLabel(id: string): string {
  const known = PROGRESS[id] ?? EXPLANATIONS[id]?.title;
  if (known !== undefined) return known;
  const bare = id.includes("$") ? id.slice(id.indexOf("$") + 1) : id;
  const words = bare.replaceAll("_", " ").toLowerCase();
  return words === "" ? "" : words.charAt(0).toUpperCase() + words.slice(1);
}

/** The class of an error says nothing to a user. */
const ERROR_CLASS = /^[A-Z]\w*(?:Error|Exception): /;

/** True for a limit that was reached: going on is then no second attempt. */
export function isLimit(reason: string): boolean {
  return /maximum (?:iteration|budget)/i.test(reason);
}

/** Splits an error reason into a heading and the details below it; `detail` is what the server says in words. */
export function explainReason(reason: string, detail = ""): Explanation & { readonly details: string } {
  const known = explain(reason);
  if (known !== null) return { ...known, details: detail };
  const details = (detail || reason).replace(ERROR_CLASS, "");
  if (/maximum iteration/i.test(reason)) {
    return {
      title: "The limit of steps is reached",
      advice: "Resume to grant as many again, or raise it in Settings.",
      link: "settings",
      details,
    };
  }
  if (/maximum budget/i.test(reason)) {
    return {
      title: "The budget of this conversation is used up",
      advice: "Resume to grant as much again, or raise it in Settings.",
      link: "settings",
      details,
    };
  }
  if (reason.startsWith("EngineUnavailableError: ")) {
    return {
      title: "The sandbox could not be started: its engine is away",
      advice: "It is started by itself as soon as the engine answers again.",
      link: null,
      details,
    };
  }
  if (/^(?:Sandbox|Engine)\w*Error: /.test(reason)) {
    return { title: "The sandbox could not be started", advice: "Send a message or try again once that is mended.", link: null, details };
  }
  if (/stuck in a loop/i.test(reason)) {
    return {
      title: "The agent was going round in circles and was halted",
      advice: "Tell it what to do differently.",
      link: null,
      details: "",
    };
  }
  return {
    title: "The agent stopped with an error",
    advice: "Send a message or resume to try again.",
    link: null,
    details,
  };
}

/** The code, or the id, about which the server has a page; empty where a reason names none. */
export function errorCode(reason: string): string {
  if (/^[A-Z_]+\$[A-Z_]+$/.test(reason)) return reason === "STATUS$ERROR" ? "" : reason;
  if (/maximum iteration/i.test(reason)) return "MaxIterationsReached";
  if (/maximum budget/i.test(reason)) return "MaxBudgetReached";
  if (/stuck in a loop/i.test(reason)) return "stuck";
  if (reason.startsWith("EngineUnavailableError: ")) return "engine_unavailable";
  return /^((?:LLM|FunctionCall|NoCondensation)\w*Error): /.exec(reason)?.[1] ?? "";
}

export function isErrorStatus(runtimeStatus: string | null): boolean {
  return runtimeStatus?.startsWith("STATUS$ERROR") ?? false;
}
