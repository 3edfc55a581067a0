/** The settings form's text and its meaning. */
import type { Settings, SettingsChange } from "../../protocol/rest";

/** What the agent asks its user about; null: as the server is set. */
export type Asks = "nothing" | "risky" | "everything" | null;

/** Who says what is risky: the server's names. With any other nobody does, and the agent asks about everything. */
const ANALYZERS: readonly string[] = ["llm", "rules", "rules+llm"];
const USUAL_ANALYZER = "rules+llm";

export interface SettingsText {
  readonly model: string;
  /** A new key; empty means that the stored one stays. */
  readonly apiKey: string;
  readonly removeKey: boolean;
  readonly baseUrl: string;
  readonly asks: Asks;
  readonly analyzer: string;
  readonly maxIterations: string;
  readonly budget: string;
  readonly gitName: string;
  readonly gitEmail: string;
}

export function toText(stored: Settings | null): SettingsText {
  return {
    model: stored?.llm_model ?? "",
    apiKey: "",
    removeKey: false,
    baseUrl: stored?.llm_base_url ?? "",
    asks: asked(stored),
    analyzer: stored?.security_analyzer ?? "",
    maxIterations: stored?.max_iterations?.toString() ?? "",
    budget: stored?.max_budget_per_task?.toString() ?? "",
    gitName: stored?.git_user_name ?? "",
    gitEmail: stored?.git_user_email ?? "",
  };
}

function asked(stored: Settings | null): Asks {
  const asks = stored?.confirmation_mode ?? null;
  if (asks === null) return null;
  if (!asks) return "nothing";
  return ANALYZERS.includes(stored?.security_analyzer ?? "") ? "risky" : "everything";
}

export type FieldErrors = Partial<Readonly<Record<keyof SettingsText, string>>>;

export function check(text: SettingsText): FieldErrors {
  const errors: Partial<Record<keyof SettingsText, string>> = {};
  if (text.baseUrl.trim() !== "" && !/^https?:\/\/\S+$/.test(text.baseUrl.trim())) {
    errors.baseUrl = "Write the whole address, beginning with http:// or https://.";
  }
  if (text.maxIterations.trim() !== "" && !/^[1-9]\d{0,6}$/.test(text.maxIterations.trim())) {
    errors.maxIterations = "Write a whole number from 1 on, or leave it empty.";
  }
  const budget = Number(text.budget.trim().replace(",", "."));
  if (text.budget.trim() !== "" && !(budget > 0)) {
    errors.budget = "Write an amount above 0, or leave it empty.";
  }
  return errors;
}

const WIRE_NAMES: Readonly<Record<string, keyof SettingsText>> = {
  llm_model: "model",
  llm_api_key: "apiKey",
  llm_base_url: "baseUrl",
  confirmation_mode: "asks",
  security_analyzer: "asks",
  max_iterations: "maxIterations",
  max_budget_per_task: "budget",
  git_user_name: "gitName",
  git_user_email: "gitEmail",
};

/** What the server said against fields, at those of the form; null where something else is wrong, too. */
export function refusedFields(problems: ReadonlyMap<string, string>): FieldErrors | null {
  const errors: Partial<Record<keyof SettingsText, string>> = {};
  for (const [name, text] of problems) {
    const field = WIRE_NAMES[name];
    if (field === undefined) return null;
    errors[field] = text;
  }
  return problems.size === 0 ? null : errors;
}

function analyzerOf(text: SettingsText): Pick<SettingsChange, "security_analyzer"> {
  // Not null, which would be the server's own one.
  if (text.asks === "everything") return { security_analyzer: "" };
  if (text.asks !== "risky" || ANALYZERS.includes(text.analyzer)) return {};
  return { security_analyzer: USUAL_ANALYZER };
}

/** What to send. Only call it with text that `check` accepts. */
export function toChange(text: SettingsText): SettingsChange {
  const number = (value: string) => (value.trim() === "" ? null : Number(value.trim().replace(",", ".")));
  const key = text.removeKey ? "" : text.apiKey.trim();
  return {
    // Empty: the server's own model again.
    llm_model: text.model.trim(),
    ...(key !== "" || text.removeKey ? { llm_api_key: key } : {}),
    llm_base_url: text.baseUrl.trim(),
    confirmation_mode: text.asks === null ? null : text.asks !== "nothing",
    ...analyzerOf(text),
    max_iterations: number(text.maxIterations),
    max_budget_per_task: number(text.budget),
    git_user_name: text.gitName.trim() || null,
    git_user_email: text.gitEmail.trim() || null,
  };
}
