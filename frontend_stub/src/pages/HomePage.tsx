/** The first page: ask for something, and a conversation begins. */
import { useEffect, useRef, useState } from "react";
import { Link, useLocation } from "wouter";
import { useDocumentTitle } from "../app/hooks";
import { useServices } from "../app/services";
import { Lines } from "../components/common/Lines";
import { Composer } from "../components/conversation/Composer";
import { OpenRecording } from "../components/conversation/OpenRecording";
import { chosen, isRepository } from "../components/conversation/repository";
import { AddRepository, RepositoryFields } from "../components/conversation/RepositoryChoice";
import { DrawerButton } from "../components/shell/Shell";
import { errorText, passes } from "../net/http";
import { tabShelf } from "../net/storage";
import { DEMO_MODEL_PREFIX } from "../protocol/rest";
import type { ServerConfig, Settings, StartingPoint } from "../protocol/rest";
import { useReadable } from "../state/store";

const EXAMPLES: readonly (readonly [string, string])[] = [
  ["Find and mend a fault", "Make a small Python project with a failing test, find the fault, and get the test green."],
  ["Write a useful script", "Write a script that lists the ten largest files below a folder, with a test, and show me how to run it."],
  ["Explain a code base", "Look through the workspace and explain what is in it, file by file, in plain words."],
];

/** True when the built-in demo will answer: no model is set, neither by the user nor by the server. */
function isDemo(config: ServerConfig | null, settings: Settings | null | undefined): boolean {
  const chosen = settings?.llm_model ?? null;
  if (chosen !== null) return chosen.startsWith(DEMO_MODEL_PREFIX);
  return config?.DRYDOCK?.demo ?? settings === null;
}

const DRAFT = "drydock.draft.home";
const TRY_AGAIN_MILLISECONDS = 3_000;

export function HomePage() {
  const services = useServices();
  const config = useReadable(services.config);
  const settings = useReadable(services.settings);
  const [, navigate] = useLocation();
  const [creating, setCreating] = useState(false);
  const [error, setError] = useState("");
  const [repository, setRepository] = useState<StartingPoint | null>(null);
  const start = chosen(repository);
  const choice = { value: repository, disabled: creating, onChange: setRepository };
  useDocumentTitle("");

  const attempt = useRef(0);
  useEffect(
    () => () => {
      attempt.current += 1;
    },
    [],
  );

  /** Where what is in the way may pass, it is asked for again under the same key, until it is given up or left. */
  const create = async (text: string) => {
    attempt.current += 1;
    const mine = attempt.current;
    setCreating(true);
    setError("");
    for (;;) {
      try {
        const { conversation_id: id } = await services.api.createConversation(text, start);
        tabShelf.remove(DRAFT);
        services.created.set(id, text);
        void services.conversations.refresh();
        navigate(`/conversations/${id}`);
        return;
      } catch (failure) {
        // What was written must not be lost with the request.
        tabShelf.write(DRAFT, text);
        if (mine !== attempt.current) return;
        setError(errorText(failure));
        if (!passes(failure)) {
          setCreating(false);
          return;
        }
      }
      await new Promise((resolve) => window.setTimeout(resolve, TRY_AGAIN_MILLISECONDS));
      if (mine !== attempt.current) return;
    }
  };
  const giveUp = () => {
    attempt.current += 1;
    setCreating(false);
    setError("");
  };

  return (
    <div className="home">
      <header className="topbar bare">
        <DrawerButton />
      </header>
      <div className="home-body">
        <h1 className="home-title">What shall we build?</h1>
        <div className="home-composer">
          <Composer
            key={error}
            draftKey={DRAFT}
            label="What shall we build?"
            placeholder="Describe a task. The agent works on it in a sandbox of its own."
            disabled={start !== null && !isRepository(start.repository)}
            hint={start !== null && !isRepository(start.repository) ? "Name the repository first" : ""}
            busy={creating}
            onSend={(text) => void create(text)}
          >
            <AddRepository {...choice} />
            <span className="composer-hint">Enter sends, Shift+Enter begins a new line</span>
          </Composer>
          <RepositoryFields {...choice} />
        </div>
        {error !== "" && (
          <p className="form-error" role="alert" data-testid="create-error">
            {creating ? "The conversation has not begun yet." : "The conversation could not be created."} {error}
            {creating && (
              <>
                {" "}
                It is tried again by itself.{" "}
                <button type="button" className="link-button" data-testid="create-give-up" onClick={giveUp}>
                  Give up
                </button>
              </>
            )}
          </p>
        )}
        <ul className="examples" aria-label="Examples">
          {EXAMPLES.map(([title, prompt]) => (
            <li key={title}>
              <button type="button" className="example" data-testid="example-prompt" disabled={creating} onClick={() => void create(prompt)}>
                <span className="example-title">{title}</span>
                <span className="example-text">{prompt}</span>
              </button>
            </li>
          ))}
        </ul>
        <OpenRecording />
        {isDemo(config, settings) && (
          <p className="demo-note" data-testid="demo-note">
            No model is set up yet, so the built-in demo agent answers: scripted, but with real commands in a real sandbox.{" "}
            <Link href="/settings">Add a model and its key</Link> for the real thing.
          </p>
        )}
      </div>
      <Lines />
    </div>
  );
}
