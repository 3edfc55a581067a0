/** Makes a conversation of a recording that somebody chooses: a file that this page, or another server, saved. */
import { useRef, useState } from "react";
import { useLocation } from "wouter";
import { useServices } from "../../app/services";
import { errorText } from "../../net/http";

export function OpenRecording() {
  const services = useServices();
  const [, navigate] = useLocation();
  const field = useRef<HTMLInputElement>(null);
  const [opening, setOpening] = useState(false);

  const open = async (file: File) => {
    setOpening(true);
    try {
      const id = await services.api.importRecording(JSON.parse(await file.text()));
      void services.conversations.refresh();
      navigate(`/conversations/${id}`);
    } catch (error) {
      setOpening(false);
      const reason = error instanceof SyntaxError ? "It is no JSON file." : errorText(error);
      services.toasts.error(`“${file.name}” could not be opened. ${reason}`);
    }
  };

  return (
    <p className="open-recording">
      <button
        type="button"
        className="link-button"
        disabled={opening}
        data-testid="open-recording"
        onClick={() => { field.current?.click(); }}
      >
        Open a recorded conversation
      </button>
      <input
        ref={field}
        type="file"
        accept=".json,application/json"
        hidden
        aria-label="Recorded conversation"
        data-testid="recording-file"
        onChange={(event) => {
          const file = event.target.files?.[0];
          event.target.value = "";
          if (file !== undefined) void open(file);
        }}
      />
    </p>
  );
}
