// What the screens around a conversation ask for and send: the panel, the pages of the settings, microagents.
// `ask` is the client's own; it notes every answer that would have broken it.

const NOTHING = { token: "", host: "" };

// The list beside every page: to its end, twenty at a time.
export async function panel(ask) {
  const found = [];
  let page = { next_page_id: "" };
  while (page.next_page_id !== null) {
    const next = page.next_page_id === "" ? "" : `&page_id=${encodeURIComponent(page.next_page_id)}`;
    page = await ask("GET", `/api/conversations?limit=20${next}`, "conversations");
    found.push(...page.results);
  }
  return found.length;
}

// Each page of the settings posts all of them as it has read them, with what was changed on it.
async function save(ask, changes) {
  const shown = await ask("GET", "/api/settings", "settings");
  const kept = { ...shown, search_api_key: "", is_new_user: false };
  delete kept.llm_api_key;
  await ask("POST", "/api/settings", undefined, { ...kept, ...changes });
  const now = await ask("GET", "/api/settings", "settings");
  return Object.keys(shown).filter((name) => JSON.stringify(shown[name]) !== JSON.stringify(now[name]));
}

export async function settingsPages(ask) {
  for (const name of ["models", "agents", "security-analyzers"]) await ask("GET", `/api/options/${name}`);
  const changed = [
    await save(ask, {}),
    await save(ask, { max_budget_per_task: 5, enable_sound_notifications: true }),
    await save(ask, { max_budget_per_task: null, enable_sound_notifications: false }),
  ];

  const server = { url: "https://tools.example.com/mcp", api_key: "key", timeout: 60 };
  const none = { sse_servers: [], stdio_servers: [], shttp_servers: [] };
  await ask("POST", "/api/settings", undefined, { mcp_config: { ...none, shttp_servers: [server] }, v1_enabled: false });
  const { mcp_config: config } = await ask("GET", "/api/settings", "settings");
  changed.push(config.shttp_servers.map((one) => `${one.url} ${one.timeout}`));
  await ask("POST", "/api/settings", undefined, { mcp_config: none, v1_enabled: false });

  await ask("POST", "/api/secrets", undefined, { name: "HARBOUR_KEY", value: "a-secret", description: "of the harbour" }, 201);
  await ask("PUT", "/api/secrets/HARBOUR_KEY", undefined, { name: "QUAY_KEY", description: "" });
  changed.push((await ask("GET", "/api/secrets", "secrets")).custom_secrets.map((one) => one.name));
  await ask("DELETE", "/api/secrets/QUAY_KEY");

  const providers = ["github", "gitlab", "bitbucket", "azure_devops", "forgejo"];
  const tokens = Object.fromEntries(providers.map((name) => [name, NOTHING]));
  await ask("POST", "/api/add-git-providers", undefined, { provider_tokens: tokens });
  await ask("POST", "/api/unset-provider-tokens");
  return changed;
}

// Of a repository, with all that is being made for it; and what clients ask for whose default is the second generation.
export async function otherScreens(ask) {
  await ask("GET", "/api/microagent-management/conversations?selected_repository=o%2Fn&limit=1000", "conversations");
  await ask("GET", "/api/v1/app-conversations/start-tasks/search?limit=10&created_at__gte=2025-12-16T09%3A00%3A00.000Z", "tasks");
  await ask("GET", "/api/v1/sandboxes?id=x");
  await ask("GET", "/api/v1/web-client/config", "laterConfig");
}
