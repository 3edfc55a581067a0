import { useEffect, useId, useRef, useState } from "react";
import { useServices } from "../../app/services";
import { ApiError, errorText, refusalOf } from "../../net/http";
import { DEMO_MODEL } from "../../protocol/rest";
import type { Settings } from "../../protocol/rest";
import { useReadable } from "../../state/store";
import { Field, NotYet } from "./Field";
import { check, refusedFields, toChange, toText } from "./form";
import type { Asks, FieldErrors, SettingsText } from "./form";

const ASKS: readonly Asks[] = ["nothing", "risky", "everything"];
const ASKS_HELP = {
  default: "Who runs the server has chosen whether the agent waits for your approval.",
  nothing: "The agent works without your approval: the sandbox is the border.",
  risky: "The agent waits for your approval before it runs what is rated risky or unknown.",
  everything: "The agent waits for your approval before everything that it does, whatever the model calls harmless.",
};

interface SettingsFormProps {
  readonly stored: Settings | null;
  readonly models: readonly string[];
}

export function SettingsForm({ stored, models }: SettingsFormProps) {
  const services = useServices();
  const [text, setText] = useState<SettingsText>(() => toText(stored));
  const [errors, setErrors] = useState<FieldErrors>({});
  const [saving, setSaving] = useState(false);
  const [failure, setFailure] = useState("");
  const modelsId = useId();
  const facts = useReadable(services.config)?.DRYDOCK;
  // What the server tells is the model in use, so it is the server's own only where the user has chosen none.
  const ownModel = facts === undefined || facts.demo || (stored?.llm_model ?? null) !== null ? "" : facts.model;
  const keySet = stored?.llm_api_key_set ?? false;

  const change = (part: Partial<SettingsText>) => {
    setText((before) => ({ ...before, ...part }));
  };
  const input = (name: "model" | "apiKey" | "baseUrl" | "maxIterations" | "budget" | "gitName" | "gitEmail") => ({
    value: text[name],
    "aria-invalid": errors[name] !== undefined,
    onChange: (event: { readonly target: { readonly value: string } }) => {
      change({ [name]: event.target.value });
    },
  });

  const save = async () => {
    const found = check(text);
    setErrors(found);
    setFailure("");
    if (Object.keys(found).length > 0) return;
    setSaving(true);
    try {
      await services.api.saveSettings(stored, toChange(text));
      services.toasts.done("Saved. New conversations use it; one that is awake does after it has slept.");
      await show();
    } catch (error) {
      const refused = error instanceof ApiError ? refusedFields(error.fields) : null;
      setErrors(refused ?? {});
      setFailure(refused === null ? refusalOf("The settings", error) : "The settings could not be stored. See the marked field.");
    }
    setSaving(false);
  };

  /** Shows what is stored, and which model answers now. */
  const show = async () => {
    try {
      const fresh = await services.api.settings();
      services.settings.set(fresh);
      services.config.set(await services.api.config());
      setText(toText(fresh));
    } catch (error) {
      setFailure(`The settings are saved, but could not be read again. ${errorText(error)}`);
    }
  };

  const form = useRef<HTMLFormElement>(null);
  useEffect(() => {
    // The wrong field may be far from the button that was pressed.
    form.current?.querySelector<HTMLElement>('[aria-invalid="true"]')?.focus();
  }, [errors]);

  return (
    <form
      ref={form}
      className="settings-form"
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void save();
      }}
    >
      <section className="panel" aria-labelledby="settings-model">
        <h2 id="settings-model">Model</h2>
        <p className="panel-note">
          {ownModel === ""
            ? "Without a model the built-in demo agent runs. Set one, with its key, to have real work done."
            : `Without a model here the server's own is used: ${ownModel}.`}
        </p>
        <Field
          label="Model"
          error={errors.model}
          help={
            <>
              Written as provider/model, such as anthropic/claude-sonnet-4-5 or ollama/qwen3.{" "}
              <button type="button" className="link-button" data-testid="use-demo" onClick={() => { change({ model: DEMO_MODEL }); }}>
                Use the demo
              </button>
            </>
          }
        >
          {({ id, describedBy }) => (
            <>
              <input id={id} aria-describedby={describedBy} list={modelsId} spellCheck={false} autoCapitalize="none" autoComplete="off" placeholder={ownModel || DEMO_MODEL} data-testid="settings-model" {...input("model")} />
              <datalist id={modelsId}>
                {models.map((model) => (
                  <option key={model} value={model} />
                ))}
              </datalist>
            </>
          )}
        </Field>
        <Field
          label="API key"
          error={errors.apiKey}
          help={
            text.removeKey ? (
              "The stored key will be removed when you save."
            ) : keySet ? (
              <>
                A key is set. It is never shown; write a new one to replace it.{" "}
                <button type="button" className="link-button" data-testid="remove-key" onClick={() => { change({ removeKey: true, apiKey: "" }); }}>
                  Remove it
                </button>
              </>
            ) : (
              "Kept on the server and never shown again. Local models need none."
            )
          }
        >
          {({ id, describedBy }) => (
            <input
              id={id}
              aria-describedby={describedBy}
              type="password"
              autoComplete="off"
              placeholder={keySet && !text.removeKey ? "•••••••• (set)" : ""}
              data-testid="settings-api-key"
              data-set={keySet}
              {...input("apiKey")}
            />
          )}
        </Field>
        <Field label="Base URL" help="Only for a server of your own or a proxy, such as http://127.0.0.1:11434 for Ollama." error={errors.baseUrl}>
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} type="url" inputMode="url" spellCheck={false} data-testid="settings-base-url" {...input("baseUrl")} />
          )}
        </Field>
      </section>

      <section className="panel" aria-labelledby="settings-agent">
        <h2 id="settings-agent">Agent</h2>
        <Field label="Ask before" help={ASKS_HELP[text.asks ?? "default"]} error={errors.asks}>
          {({ id, describedBy }) => (
            <select
              id={id}
              aria-describedby={describedBy}
              data-testid="settings-asks"
              value={text.asks ?? "default"}
              onChange={(event) => { change({ asks: ASKS.find((one) => one === event.target.value) ?? null }); }}
            >
              <option value="default">As the server is set</option>
              <option value="nothing">Nothing</option>
              <option value="risky">Risky actions</option>
              <option value="everything">Every action</option>
            </select>
          )}
        </Field>
        <div className="field-pair">
          <Field label="Steps at most" help="Then the agent halts and asks. Empty: the server's limit." error={errors.maxIterations}>
            {({ id, describedBy }) => (
              <input id={id} aria-describedby={describedBy} inputMode="numeric" data-testid="settings-max-iterations" {...input("maxIterations")} />
            )}
          </Field>
          <Field label="Budget in dollars" help="For one conversation. Empty: no limit." error={errors.budget}>
            {({ id, describedBy }) => (
              <input id={id} aria-describedby={describedBy} inputMode="decimal" data-testid="settings-budget" {...input("budget")} />
            )}
          </Field>
        </div>
      </section>

      <section className="panel" aria-labelledby="settings-git">
        <h2 id="settings-git">Git</h2>
        <p className="panel-note">Who commits are by. Optional.</p>
        <div className="field-pair">
          <Field label="Name" error={errors.gitName}>
            {({ id, describedBy }) => <input id={id} aria-describedby={describedBy} autoComplete="name" data-testid="settings-git-name" {...input("gitName")} />}
          </Field>
          <Field label="Mail address" error={errors.gitEmail}>
            {({ id, describedBy }) => <input id={id} aria-describedby={describedBy} type="email" autoComplete="email" data-testid="settings-git-email" {...input("gitEmail")} />}
          </Field>
        </div>
      </section>

      <div className="form-actions">
        {failure !== "" && (
          <p className="form-error" role="alert" data-testid="settings-error">
            {failure}
          </p>
        )}
        <button type="submit" className="button primary" disabled={saving} data-testid="settings-save">
          {saving ? "Saving" : "Save"}
        </button>
        {saving && <NotYet />}
      </div>
    </form>
  );
}
