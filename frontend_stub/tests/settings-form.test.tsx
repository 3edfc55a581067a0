import { describe, expect, it } from "vitest";
import { check, refusedFields, toChange, toText } from "../src/components/settings/form";

describe("the settings form", () => {
  const empty = toText(null);
  const fields = {
    llm_model: null,
    llm_api_key_set: false,
    llm_base_url: null,
    confirmation_mode: null,
    security_analyzer: null,
    max_iterations: null,
    max_budget_per_task: null,
    git_user_name: null,
    git_user_email: null,
  };

  it("leaves the key alone when it is not written; no model means the server's own", () => {
    expect(toChange(empty)).toEqual({
      llm_model: "",
      llm_base_url: "",
      confirmation_mode: null,
      max_iterations: null,
      max_budget_per_task: null,
      git_user_name: null,
      git_user_email: null,
    });
  });

  it("sends a new key, or an empty one to remove it", () => {
    expect(toChange({ ...empty, apiKey: " k " }).llm_api_key).toBe("k");
    expect(toChange({ ...empty, removeKey: true }).llm_api_key).toBe("");
  });

  it("says what the agent asks about as it is, and keeps the analyzer that was chosen", () => {
    const stored = (mode: boolean | null, analyzer: string | null) => {
      const form = toText({ ...fields, confirmation_mode: mode, security_analyzer: analyzer });
      return [form.asks, toChange(form)] as const;
    };
    expect(stored(null, null)).toEqual([null, expect.objectContaining({ confirmation_mode: null })]);
    expect(stored(false, "llm")).toEqual(["nothing", expect.not.objectContaining({ security_analyzer: expect.anything() as unknown })]);
    for (const none of [null, "", "none", "invariant"]) {
      expect(stored(true, none)).toEqual(["everything", expect.objectContaining({ confirmation_mode: true, security_analyzer: "" })]);
    }
    for (const known of ["llm", "rules", "rules+llm"]) {
      expect(stored(true, known)).toEqual(["risky", expect.not.objectContaining({ security_analyzer: expect.anything() as unknown })]);
    }
    expect(toChange({ ...empty, asks: "risky" })).toMatchObject({ confirmation_mode: true, security_analyzer: "rules+llm" });
    expect(toChange({ ...empty, asks: "everything", analyzer: "llm" })).toMatchObject({ security_analyzer: "" });
  });

  it("names what is wrong with a field", () => {
    expect(check({ ...empty, baseUrl: "localhost", maxIterations: "0", budget: "-1" })).toMatchObject({
      baseUrl: expect.stringContaining("http://") as string,
      maxIterations: expect.stringContaining("whole number") as string,
      budget: expect.stringContaining("above 0") as string,
    });
    expect(check({ ...empty, baseUrl: "http://h:1/v1", maxIterations: "50", budget: "2,5" })).toEqual({});
    expect(toChange({ ...empty, budget: "2,5" }).max_budget_per_task).toBe(2.5);
  });

  it("shows what the server refuses at its field, and elsewhere what the form has no field for", () => {
    expect(refusedFields(new Map([["llm_base_url", "no address"], ["max_iterations", "too many"]]))).toEqual({
      baseUrl: "no address",
      maxIterations: "too many",
    });
    expect(refusedFields(new Map([["agent", "there is none of this name"], ["llm_base_url", "no address"]]))).toBeNull();
    expect(refusedFields(new Map())).toBeNull();
  });
});
