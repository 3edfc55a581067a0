/** The user's own secrets: what there are, a new one, and the way to be rid of one. Values are never shown. */
import { useCallback, useState } from "react";
import { useLoading } from "../../app/hooks";
import { useServices } from "../../app/services";
import { errorText, refusalOf } from "../../net/http";
import type { SecretName } from "../../protocol/rest";
import { ConfirmDialog } from "../common/ConfirmDialog";
import { Field, NotYet } from "./Field";

const NAME = /^[A-Za-z_][A-Za-z0-9_]*$/;
const EMPTY = { name: "", value: "", description: "" };

export function Secrets() {
  const { api, toasts } = useServices();
  const [secrets, setSecrets] = useState<readonly SecretName[] | null>(null);
  const [failure, setFailure] = useState("");
  const [deleting, setDeleting] = useState<string | null>(null);

  const load = useCallback(async () => {
    setSecrets(await api.secrets());
  }, [api]);
  const problem = useLoading(load);

  /** Does it, and shows what there is then; false when it failed. */
  const change = async (act: () => Promise<void>, done: string): Promise<boolean> => {
    setFailure("");
    try {
      await act();
      toasts.done(done);
    } catch (error) {
      setFailure(refusalOf("The change", error));
      return false;
    }
    try {
      setSecrets(await api.secrets());
    } catch (error) {
      setFailure(`${done} The list could not be read again. ${errorText(error)}`);
    }
    return true;
  };

  return (
    <section className="panel" aria-labelledby="settings-secrets" data-testid="secrets">
      <h2 id="settings-secrets">Secrets</h2>
      <p className="panel-note">
        A command that names one gets its value in a variable, such as <code>$API_KEY</code>. The agent is told names and
        descriptions only; values are hidden wherever they appear.
      </p>
      {secrets !== null && secrets.length > 0 && (
        <ul className="secret-list">
          {secrets.map((secret) => (
            <li key={secret.name} className="secret" data-testid="secret">
              <span className="secret-text">
                <code className="secret-name">{secret.name}</code>
                {secret.description !== "" && <span className="dim">{secret.description}</span>}
              </span>
              <button type="button" className="link-button" aria-label={`Delete ${secret.name}`} data-testid="delete-secret" onClick={() => { setDeleting(secret.name); }}>
                Delete
              </button>
            </li>
          ))}
        </ul>
      )}
      <NewSecret
        taken={secrets ?? []}
        onAdd={(secret) => change(() => api.createSecret(secret), `${secret.name} is stored. Conversations can use it at once.`)}
      />
      {(failure || problem) !== "" && (
        <p className="form-error" role="alert" data-testid="secrets-error">
          {failure || problem}
        </p>
      )}
      {deleting !== null && (
        <ConfirmDialog
          title={`Delete ${deleting}?`}
          text="No command gets it any more, in conversations that run either. Its value cannot be brought back."
          confirmLabel="Delete"
          onCancel={() => { setDeleting(null); }}
          onConfirm={() => {
            setDeleting(null);
            void change(() => api.deleteSecret(deleting), `${deleting} is deleted.`);
          }}
        />
      )}
    </section>
  );
}

interface NewSecretProps {
  readonly taken: readonly SecretName[];
  readonly onAdd: (secret: { readonly name: string; readonly value: string; readonly description: string }) => Promise<boolean>;
}

function NewSecret({ taken, onAdd }: NewSecretProps) {
  const [text, setText] = useState(EMPTY);
  const [problem, setProblem] = useState<string>();
  const [adding, setAdding] = useState(false);
  const name = text.name.trim();

  const input = (field: keyof typeof EMPTY) => ({
    value: text[field],
    onChange: (event: { readonly target: { readonly value: string } }) => {
      setProblem(undefined);
      setText((before) => ({ ...before, [field]: event.target.value }));
    },
  });

  const add = async () => {
    if (!NAME.test(name)) setProblem("Letters, digits and underscores, with no digit first.");
    else if (taken.some((one) => one.name === name)) setProblem("There is one of this name. Delete it first.");
    else {
      setAdding(true);
      if (await onAdd({ ...text, name, description: text.description.trim() })) setText(EMPTY);
      setAdding(false);
    }
  };

  return (
    <form
      noValidate
      onSubmit={(event) => {
        event.preventDefault();
        void add();
      }}
    >
      <div className="field-pair">
        <Field label="Name" help="Such as API_KEY." error={problem}>
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} aria-invalid={problem !== undefined} spellCheck={false} autoCapitalize="characters" autoComplete="off" data-testid="secret-name" {...input("name")} />
          )}
        </Field>
        <Field label="Value" help="Never shown again.">
          {({ id, describedBy }) => (
            <input id={id} aria-describedby={describedBy} type="password" autoComplete="new-password" data-testid="secret-value" {...input("value")} />
          )}
        </Field>
      </div>
      <Field label="Description" help="Optional. Tells the agent what it is for.">
        {({ id, describedBy }) => (
          <input id={id} aria-describedby={describedBy} autoComplete="off" data-testid="secret-description" {...input("description")} />
        )}
      </Field>
      <button type="submit" className="button secret-add" disabled={adding || name === "" || text.value.trim() === ""} data-testid="secret-add">
        {adding ? "Adding" : "Add the secret"}
      </button>
      {adding && <NotYet />}
    </form>
  );
}
