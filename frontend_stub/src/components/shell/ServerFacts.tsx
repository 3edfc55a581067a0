/** What this server runs on, in one line; more on hover, all of it in the settings. */
import { useServices } from "../../app/services";
import { useReadable } from "../../state/store";
import { AlertIcon } from "../common/icons";

const SANDBOXES: Readonly<Record<string, string>> = {
  docker: "Docker sandbox",
  local: "Local sandbox",
  unconfined: "No sandbox",
  none: "Sandbox not available",
};

export function sandboxName(provider: string): string {
  return SANDBOXES[provider] ?? provider;
}

export function ServerFacts() {
  const { config } = useServices();
  const facts = useReadable(config)?.DRYDOCK;
  if (facts === undefined) return null;
  const unsafe = ["unconfined", "none"].includes(facts.sandbox.provider);
  return (
    <p className={unsafe ? "server-facts unsafe" : "server-facts"} data-testid="server-facts" title={facts.sandbox.reason}>
      {unsafe && <AlertIcon size={14} />}
      {facts.sandbox.provider !== "" && <span>{sandboxName(facts.sandbox.provider)}</span>}
      <span className="server-model">{facts.demo ? "Demo agent" : facts.model}</span>
    </p>
  );
}
