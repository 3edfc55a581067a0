/** Who uses the server, for administrators. */
import { useCallback, useState } from "react";
import { useLoading } from "../../app/hooks";
import { ROLES } from "../../net/accounts";
import type { AccountsApi, Person } from "../../net/accounts";
import { errorText } from "../../net/http";
import { Field } from "./Field";

function stateOf(person: Person): string {
  if (person.disabled) return "disabled";
  return person.pending ? "invited" : person.email;
}

export function People({ api }: { readonly api: AccountsApi }) {
  const [people, setPeople] = useState<readonly Person[]>([]);
  const [link, setLink] = useState<{ readonly name: string; readonly address: string } | null>(null);
  const [failure, setFailure] = useState("");
  const [name, setName] = useState("");
  const [role, setRole] = useState<string>("user");

  const load = useCallback(async () => {
    setPeople(await api.people());
  }, [api]);
  const problem = useLoading(load);

  const change = async (act: () => Promise<void>) => {
    setFailure("");
    try {
      await act();
      await load();
    } catch (error) {
      setFailure(errorText(error));
    }
  };

  const add = () =>
    change(async () => {
      const added = name.trim();
      setLink({ name: added, address: await api.addPerson(added, role) });
      setName("");
    });

  return (
    <section className="panel" aria-labelledby="settings-people" data-testid="people">
      <h2 id="settings-people">Users</h2>
      <p className="panel-note">Everybody has what is theirs alone; nobody sees what somebody else has, administrators neither.</p>
      <ul className="secret-list">
        {people.map((one) => (
          <li key={one.name} className="secret" data-testid="person" data-name={one.name}>
            <span className="secret-text">
              <bdi className="secret-name">{one.name}</bdi>
              <span className="dim">{stateOf(one)}</span>
            </span>
            <span className="secret-text">
              <select
                aria-label={`Role of ${one.name}`}
                value={one.role}
                data-testid="person-role"
                onChange={(event) => void change(() => api.changePerson(one.name, { role: event.target.value }))}
              >
                {ROLES.map((value) => (
                  <option key={value} value={value}>
                    {value}
                  </option>
                ))}
              </select>
              <button type="button" className="link-button" data-testid="person-reset" disabled={one.disabled} onClick={() => void change(async () => { setLink({ name: one.name, address: await api.resetPerson(one.name) }); })}>
                New link
              </button>
              <button type="button" className="link-button" data-testid="person-disable" onClick={() => void change(() => api.changePerson(one.name, { disabled: !one.disabled }))}>
                {one.disabled ? "Enable" : "Disable"}
              </button>
            </span>
          </li>
        ))}
      </ul>
      {link !== null && (
        <p className="panel-note" data-testid="person-link">
          Give this to {link.name}, who chooses a password by it, once, within three days: <code className="secret-name">{link.address}</code>
        </p>
      )}
      <form
        onSubmit={(event) => {
          event.preventDefault();
          void add();
        }}
      >
        <div className="field-pair">
          <Field label="Name of a new user">
            {({ id }) => (
              <input id={id} autoComplete="off" autoCapitalize="none" spellCheck={false} value={name} data-testid="person-name" onChange={(event) => { setName(event.target.value); }} />
            )}
          </Field>
          <Field label="Role">
            {({ id }) => (
              <select id={id} value={role} data-testid="new-person-role" onChange={(event) => { setRole(event.target.value); }}>
                {ROLES.map((value) => (
                  <option key={value} value={value}>
                    {value}
                  </option>
                ))}
              </select>
            )}
          </Field>
        </div>
        <button type="submit" className="button secret-add" disabled={name.trim() === ""} data-testid="add-person">
          Add the user
        </button>
      </form>
      {(failure || problem) !== "" && (
        <p className="form-error" role="alert" data-testid="people-error">
          {failure || problem}
        </p>
      )}
    </section>
  );
}
