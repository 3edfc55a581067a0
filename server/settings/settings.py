"""`Settings`: the server's settings, which `server.settings.loading` reads.

Each field's description is what `docs/configuration.md` shows; a test keeps the two the same.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PrivateAttr, field_validator

from agent_core.runtime.sandbox import NetworkWish, SandboxWish
from agent_core.session.settings import AgentOptions
from agent_core.skills.context import MARKETPLACE
from server.settings.conflicts import (
    for_somebody,
    key_of_a_certificate,
    known_profiles,
    no_less_than_usual,
    of_a_provider,
    of_a_user_header,
    of_accounts,
    usable_profiles,
    who_says_who_asks,
    with_an_image_to_install_in,
)
from server.settings.docker_hosts import DockerHostTable
from server.settings.git_hosts import GitHosts
from server.settings.llm_profiles import OptionalProfile, ProfileName, ProfileTable, PurposeTable
from server.settings.mcp_config import OptionalServers, Programs
from server.settings.plugin_source import PinnedPlugins
from server.settings.registered_names import AgentName, AnalyzerName, ByAgents, ListenerNames, ModuleNames
from server.settings.text_fields import (
    AccessToken,
    BasePathField,
    BaseUrl,
    DomainName,
    EnvironmentVariables,
    FolderPath,
    FromTable,
    Issuer,
    Networks,
    NodeLabels,
    OptionalBaseUrl,
    OptionalDatabaseUrl,
    OptionalFolder,
    OptionalKey,
    OptionalLine,
    OptionalName,
    OptionalRedisUrl,
    OptionalText,
    Origins,
    ProxyAddresses,
    TrimmedText,
    UserHeaderName,
    Words,
    from_json,
    none_if_blank,
)

DEMO_MODEL = "demo/tour"
MEGABYTE = 1024 * 1024
MAX_COMMANDS = 20_000

OptionalOptions = Annotated[AgentOptions | None, BeforeValidator(from_json)]
Seconds = Annotated[float, Field(ge=0)]
PositiveSeconds = Annotated[float, Field(gt=0)]
RoleName = Literal["administrator", "user", "viewer"]
RoleTable = Annotated[dict[TrimmedText, RoleName], FromTable]
OptionalRole = Annotated[RoleName | None, BeforeValidator(none_if_blank)]
AgentTable = Annotated[dict[TrimmedText, ProfileName], FromTable, ByAgents]
AgentOptionsTable = Annotated[dict[TrimmedText, AgentOptions], FromTable, ByAgents]


class Settings(BaseModel):
    """All settings of one server process. Times are in seconds, sizes in bytes unless the name says otherwise."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", validate_default=True, allow_inf_nan=False, hide_input_in_errors=True
    )

    # Modules: before all settings that name what they register
    modules: ModuleNames = Field(
        (),
        description="Python modules of your own, such as `my_company.drydock`, that are imported first; what they "
        "register (tools, agents, condensers, security analyzers, critics, routers, event listeners) can be named in "
        "settings (docs/extending.md).",
    )
    event_listeners: ListenerNames = Field(
        (),
        description="Names of registered event listeners that see what is stored in conversations (docs/extending.md).",
    )

    # Address
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on. Any but loopback needs `token`.")
    port: int = Field(3000, ge=0, le=65535, description="Port to listen on; 0 takes a free one and prints it.")
    data_dir: FolderPath = Field(
        Path("data"), description="Folder of the database, the keys and whatever else is kept."
    )
    tls_certificate: OptionalFolder = Field(
        None,
        description="PEM file with the server's certificate and those that vouch for it, as certbot's `fullchain.pem`:"
        " with one the port speaks HTTPS alone. It is taken anew within seconds when the files change.",
    )
    tls_key: OptionalFolder = Field(
        None, description="PEM file with its private key, not encrypted; by default it is in the certificate's file."
    )
    base_path: BasePathField = Field(
        "",
        description="Path below which clients find the server, such as `/drydock`, where a proxy has others beside it. "
        "The proxy may pass paths on with it, or take it off.",
    )
    page: OptionalFolder = Field(
        None,
        description="Folder of a built page to serve in place of our own, such as another client of the protocol. "
        "It has an `index.html`; its scripts are not restricted.",
    )

    # Access
    token: AccessToken = Field(
        None,
        description="The one access token, at least 24 characters; `auto` makes one on first start and keeps it in "
        "the data folder. Without one there is no login, and only loopback may be listened on.",
    )
    users: Literal["one", "accounts"] = Field(
        "one",
        description="Who uses the server: `one` user, who has the token if there is one, or several with `accounts` of "
        "their own, who have names, passwords and tokens. The token is then a key of the first administrator.",
    )
    oidc_issuer: Issuer = Field(
        None,
        description="Address of an OpenID provider by which users may sign in, as it writes its `issuer` itself "
        '(docs/users.md); with `users = "accounts"`.',
    )
    oidc_client_id: OptionalName = Field(None, description="What the provider calls this server.")
    oidc_client_secret: OptionalKey = Field(
        None, description="By what this server shows the provider who it is; without one the provider takes its word."
    )
    oidc_scopes: Words = Field(
        ("openid", "profile", "email"),
        description="What the provider is asked to say of users; some want a further one for groups.",
    )
    oidc_groups_claim: TrimmedText = Field(
        "groups",
        min_length=1,
        description="The claim with a user's groups, in the ID token or at the provider's userinfo endpoint; with dots "
        "where it is in another one (`realm_access.roles`).",
    )
    oidc_sign_in_hours: float = Field(
        12,
        gt=0,
        le=720,
        description="Hours after which who has signed in by the provider does so again: so long does it take until "
        "somebody who is disabled there is shut out here, and so long do those who are signed in stay if it is down.",
    )
    user_header: UserHeaderName = Field(
        None,
        description="Header in which a proxy names who asks, such as `Remote-User`, whom it has signed in; with "
        '`users = "accounts"` (docs/users.md). The proxy has to replace what clients send in it.',
    )
    user_groups_header: UserHeaderName = Field(
        None, description="Header in which it names their groups, with commas or `|` between."
    )
    user_header_from: ProxyAddresses = Field(
        (),
        description="Addresses or networks of that proxy: what anybody else sends in these headers is left out, "
        "counted and logged.",
    )
    group_roles: RoleTable = Field(
        {},
        description="Roles (`administrator`, `user`, `viewer`) of users for whom the provider or the proxy vouches, by "
        "their groups: the highest counts, anew with each sign-in. A table in the file, JSON in the variable.",
    )
    default_role: OptionalRole = Field(
        None,
        description="The role of such users who are in none of those groups; left open, they are not let in. Where "
        "there is no `group_roles`, it is what they begin with.",
    )
    create_users: bool = Field(
        True,
        description="Whether such users get an account when they come for the first time; else only those come in who "
        "have one.",
    )
    authenticator_class: OptionalName = Field(
        None,
        description="Dotted path of an `Authenticator` of your own, which says whose a request is; by default the "
        "token does, and everybody who has it is the same user.",
    )
    allowed_hosts: Words = Field(
        (),
        description="Further host names under which the server may be asked (the `Host` header); `*` allows all. "
        "Loopback names, `host` itself and, where it listens on all addresses, plain IP addresses always are.",
    )
    allowed_origins: Origins = Field(
        (),
        description="Further origins (such as `https://tools.example.com`) whose pages may use the server; a page "
        "that the server delivered itself always may.",
    )
    trusted_proxies: Networks = Field(
        (),
        description="Addresses or networks (`127.0.0.1`, `10.0.0.0/8`) of proxies before this server, whose "
        "`X-Forwarded-For` and `X-Forwarded-Proto` say for whom they ask. From all others they mean nothing.",
    )
    webhook_hosts: Words = Field(
        (),
        description="Hosts without a public address that webhooks may be sent to, and that a program's analyzer may "
        "ask; `*` allows all. Where the server listens on loopback, so may this machine.",
    )
    mcp_oauth_hosts: Words = Field(
        (),
        description="Hosts without a public address that MCP servers may name for signing in, beside their own; `*` "
        "allows all. Where the server listens on loopback, so may this machine.",
    )
    preview_domain: DomainName = Field(
        "localhost",
        description="Domain whose names below it (`*.localhost`) all lead to this server: each preview of a sandbox's "
        "port gets one, and with it an origin of its own. `localhost` serves browsers on this machine; for others, and "
        "with `none` for all, previews are paths with sandboxed documents, in which not every program works.",
    )

    # Limits
    max_request_bytes: int = Field(16 * MEGABYTE, ge=1024, description="Largest body of one HTTP request.")
    max_upload_bytes: int = Field(
        512 * MEGABYTE, ge=1024, description="Largest form of files for a workspace; they are passed on as they come."
    )
    max_message_bytes: int = Field(4 * MEGABYTE, ge=1024, description="Largest message over a socket.")
    requests_per_second: float = Field(
        50, ge=0, description="HTTP requests per second and client address, with four seconds' worth at once; 0: any."
    )
    max_concurrent_conversations: int | None = Field(
        None,
        ge=1,
        description="Conversations of each user that may be at work at a time; further ones wait for their turn. Left"
        " open: as many as of all users.",
    )
    max_working_conversations: int | None = Field(
        None,
        ge=1,
        description="Conversations of all users that may be at work at a time; the users take turns. Left open:"
        " reckoned from the machine's processors (`drydock doctor` says how), and no more than `max_sandboxes`.",
    )
    max_sandboxes: int | None = Field(
        None,
        ge=1,
        description="Sandboxes that may be up at a time; those of conversations at rest make room for those at work."
        " Left open: reckoned from the machine's memory (`drydock doctor` says how).",
    )
    warm_sandboxes: int = Field(
        0,
        ge=0,
        description="Sandboxes that may be kept ready for conversations to come, of the kinds that have begun within"
        " the last ten minutes and as many as within the last one; they give way to what waits, and where the disk or"
        " memory is short. 0: none.",
    )
    max_connections: int | None = Field(
        None,
        ge=8,
        description="Connections of all clients at a time; further ones are answered 503. Left open: three quarters of "
        "the descriptors that the process may have, of which it asks the system for as many as it gets, up to 65536.",
    )
    max_live_logs: int = Field(
        100, ge=1, description="Live logs (`…/log/live`) of each user at a time; further ones are answered 429."
    )
    max_feed_buffer_bytes: int = Field(
        MEGABYTE // 4, ge=64 * 1024, description="What may wait in the transport for a client before its feed pauses."
    )

    # Conversations
    conversation_manager_class: str = Field(
        "server.conversation_manager.standalone.StandaloneConversationManager",
        description="Dotted path of the class that runs the conversations.",
    )
    cluster_url: OptionalName = Field(
        None,
        description="Address at which the other servers of the same PostgreSQL ask this one, such as "
        "`http://10.0.0.7:3000`; left open: the one that it prints. Only with `ClusteredConversationManager`.",
    )
    cluster_lease_seconds: float = Field(
        10.0,
        ge=1,
        description="Seconds after which the others carry on what a server ran that the database does not hear of.",
    )
    redis_url: OptionalRedisUrl = Field(
        None,
        description="Address of a Redis (`redis://:password@host:6379/0`, `rediss://…`, `unix:///…`) over which servers"
        " of one database tell each other live output and the words of answers as they come; by default, and while it"
        " is away, over PostgreSQL. Needs the extra `redis` (`drydock[redis]`).",
    )
    experiment_manager_class: str = Field(
        "server.session.agents.experiments.ExperimentManager",
        description="Dotted path of the class that may give conversations another configuration.",
    )
    sandbox_provider_class: OptionalName = Field(
        None, description="Dotted path of a `SandboxProvider` of your own, which then counts instead of `sandbox`."
    )
    monitoring_listener_class: OptionalName = Field(
        None, description="Dotted path of a `MonitoringListener` of your own, which counts what happens."
    )
    agent_class: AgentName = Field("CodeActAgent", description="Agent of a conversation whose user chose none.")
    max_iterations: int = Field(500, ge=1, description="Steps after which an agent stops and asks.")
    max_budget_per_task: float | None = Field(
        None, gt=0, description="US dollars after which an agent stops and asks; none by default."
    )
    confirmation_mode: bool = Field(
        False,
        description="Whether actions wait for the user's approval: every one, or, for users who have chosen a"
        " `security_analyzer`, the risky ones.",
    )
    security_analyzer: AnalyzerName = Field(
        None,
        description="What judges the risk of actions where the user chose nothing: `llm` (the model's own word), "
        "`rules` (rules that read commands) or `rules+llm` (the greater risk of both). Without one, both judge, and "
        "with `confirmation_mode` every action waits.",
    )
    agent_options: OptionalOptions = Field(
        None,
        description="The agents' tools where the user chose nothing about them: flags such as `enable_jupyter`, "
        "`filter_tools_regex`, `tool_concurrency_limit`, and `preset` or `tools` by name (docs/extending.md); a table "
        "in the file, JSON in the variable.",
    )
    agent_configs: AgentOptionsTable = Field(
        {},
        description="The same for one agent class alone, before `agent_options`: tables by the names of classes, such "
        "as `[agent_configs.BrowsingAgent]`; JSON in the variable.",
    )
    system_message_suffix: OptionalText = Field(
        None,
        description="Text at the end of every agent's system message; what its user has chosen for there follows it.",
    )
    user_message_suffix: OptionalText = Field(
        None, description="Text that agents are told after each message of their user, who may have one of their own."
    )
    disabled_skills: Words = Field(
        (), description="Names of skills that no agent is told, wherever they come from; users may name others."
    )
    load_public_skills: bool = Field(
        False,
        description="Whether agents are told the skills of the repository that the variable `EXTENSIONS_URL` names,"
        " and those of `registered_marketplaces`, where their user chose nothing.",
    )
    registered_marketplaces: Words = Field(
        (),
        description="Further repositories of public skills, as addresses that git takes or folders of this host; they"
        " are fetched at most once a minute. Of two skills with one name that of the first counts.",
    )
    marketplace_path: str = Field(
        MARKETPLACE,
        min_length=1,
        description="The file in each repository of public skills that lists those to be told; where there is none, all"
        " of its folder `skills` are.",
    )
    load_project_skills: bool = Field(
        True, description="Whether agents are told the skills of the workspace, where their user chose nothing."
    )
    load_org_skills: bool = Field(
        True,
        description="Whether agents are told the skills of the organisation whose repository they work in: those in its"
        " repository `.openhands` (GitLab, Azure DevOps: `openhands-config`), where their user chose nothing.",
    )
    plugins: PinnedPlugins = Field(
        (),
        description="Plugins for all users, each at a commit: `https://host/owner/name.git#<full hash>`, and behind it "
        "`:folder` where the plugin is a folder there (docs/extending.md).",
    )
    plugin_hosts: Words = Field(
        (),
        description="Hosts without a public address that plugins may be fetched from, also unencrypted; `*` allows all."
        " Where the server listens on loopback, so may this machine.",
    )
    user_plugins: bool = Field(
        True, description="Whether users may install plugins from git addresses, and have those that they installed."
    )
    required_plugins: bool = Field(
        False, description="Whether users may not switch off the plugins of the setting `plugins`."
    )
    enable_browsing: Literal["auto", "always", "never"] = Field(
        "auto",
        description="Whether agents get a browser. `auto`: where their sandbox may have one, which is where its image "
        "is not the default one, or where it is local and this host has Chromium and Playwright.",
    )
    enable_snapshots: bool = Field(
        True,
        description="Whether the files of workspaces are kept as they were, so that they go back with conversations.",
    )
    enable_sub_agents: bool = Field(
        False,
        description="Whether agents have sub-agents work for them, in their sandbox and for their budget, where "
        "nobody chose otherwise (`agent_options`).",
    )
    allow_set_conversation_id: bool = Field(
        False, description="Whether a client may choose the id of the conversation that it creates."
    )
    conversation_max_age_seconds: Seconds = Field(
        0, description="Conversations older than this are left out of the list; 0 lists all."
    )
    resume_on_start: bool = Field(
        True, description="Whether agents that were at work when the server ended go on when it starts again."
    )
    resume_concurrency: int = Field(2, ge=1, description="How many of them are started at the same time.")
    held_back_seconds: Seconds = Field(
        300,
        description="How long the server has to be up before it takes up again, alone, a conversation that is held back"
        " because its last lives ended with the server and without a step; each further failure doubles it. 0: only its"
        " user does.",
    )
    generate_titles: bool = Field(
        True, description="Whether the model is asked, once, for a title; otherwise the first message's beginning."
    )

    # Idle conversations
    idle_unload_seconds: Seconds = Field(
        3600, description="A conversation without a client and without work is unloaded after this; 0: never."
    )
    sandbox_stop_seconds: Seconds = Field(
        3600, description="The paused sandbox of an unloaded conversation is stopped after this; 0: never."
    )
    cull_interval_seconds: PositiveSeconds = Field(15, description="How often idle conversations are looked for.")
    shutdown_seconds: PositiveSeconds = Field(10, description="Bound on suspending all conversations at the end.")

    # Retention
    retention_days: float = Field(
        0,
        ge=0,
        description="Conversations that were not used for so many days are deleted, with their files; 0: never. None "
        "of the limits below deletes what works, waits for an answer, has a client or was used within the last hour.",
    )
    retention_user_conversations: int = Field(
        0, ge=0, description="Each user keeps so many, and the ones that were used longest ago are deleted; 0: any."
    )
    retention_user_mb: int = Field(
        0,
        ge=0,
        description="The same by MiB of a user's logs, with large payloads and sub-agents' logs, without the files of "
        "sandboxes; 0: any.",
    )
    retention_total_mb: int = Field(0, ge=0, description="The same by MiB of all users together; 0: any.")
    retention_interval_seconds: PositiveSeconds = Field(
        600, description="How often what is beyond these limits is looked for."
    )

    # Sandbox
    sandbox: SandboxWish = Field(
        "auto",
        description="`docker`, `local` (bubblewrap), `kubernetes` (pods of a cluster: docs/kubernetes.md), "
        "`unconfined` (no isolation at all: only for code that you trust), or `auto`: Docker where an engine answers, "
        "else local.",
    )
    docker_hosts: DockerHostTable = Field(
        {},
        description="Docker engines, in place of the one of `DOCKER_HOST`: tables by names of your own, such as"
        " `[docker_hosts.big]`, with `url` (`unix://`, `ssh://`, or `tcp://` with `tls_ca`, `tls_cert`, `tls_key`) and,"
        " where wished, `max_sandboxes` and `draining` (docs/machines.md); JSON in the variable.",
    )
    sandbox_image: str = Field(
        "drydock/sandbox:base",
        min_length=1,
        description="Docker image of the sandboxes: any with Python 3.8 or newer. A tag may mean another image one "
        "day; `name@sha256:…` never does.",
    )
    sandbox_images: Words = Field(
        (),
        description="Images that conversations may choose beside `sandbox_image` and our own (`drydock/sandbox:…`): by "
        "their user's settings, by the request that makes them, or by a file of their repository. Patterns in which "
        "`*` stands for anything but a slash, such as `python:3.*` or `ghcr.io/me/*`; `*` alone allows any.",
    )
    sandbox_network: NetworkWish = Field(
        "full",
        description="`none`: no network; `internal`: one without a way out, not to other sandboxes either; "
        "`full`: the internet and your network, but neither this host nor what its cloud tells it (link-local and "
        "metadata addresses), over IPv4 only; `host-access`: `full`, and this host with all that listens there.",
    )
    sandbox_network_max: NetworkWish | None = Field(
        None,
        description="The widest network that a conversation may choose, from `none` over `internal` and `full` to "
        "`host-access`; by default `sandbox_network`.",
    )
    sandbox_memory_mb: int = Field(4096, ge=64, description="Memory of one sandbox, in MiB.")
    sandbox_memory_max_mb: int | None = Field(
        None,
        ge=64,
        description="The most memory that a conversation may choose, in MiB; by default `sandbox_memory_mb`.",
    )
    sandbox_cpus: float = Field(2.0, gt=0, description="Processors of one sandbox.")
    sandbox_cpus_max: float | None = Field(
        None, gt=0, description="The most processors that a conversation may choose; by default `sandbox_cpus`."
    )
    sandbox_processes: int = Field(512, ge=16, description="Processes and threads of one sandbox.")
    sandbox_processes_max: int | None = Field(
        None, ge=16, description="The most processes that a conversation may choose; by default `sandbox_processes`."
    )
    sandbox_tmp_mb: int = Field(
        1024, ge=1, description="Size of a sandbox's `/tmp`, and in a container of its `/var/tmp`, in MiB, in memory."
    )
    sandbox_disk_mb: int = Field(
        10240,
        ge=0,
        description="What the files of one sandbox may take on the disk, in MiB; 0: any amount. Where there is more, "
        "whatever runs in it is ended. Docker on XFS with `pquota`: held by quotas, too (`drydock doctor` says so).",
    )
    sandbox_disk_max_mb: int | None = Field(
        None,
        ge=0,
        description="The most that a conversation may choose of the disk, in MiB; by default `sandbox_disk_mb`; 0: any "
        "amount.",
    )
    sandbox_inodes: int = Field(
        1_000_000, ge=0, description="How many files, folders and links one sandbox may have; 0: any number."
    )
    sandbox_read_only: bool = Field(
        True,
        description="Docker: whether nothing of a sandbox's image can be changed. What can be written then is "
        "`/workspace`, the home folder, `/tmp` and `/var/tmp`.",
    )
    sandbox_start_seconds: PositiveSeconds = Field(60, description="Bound on a sandbox's start.")
    sandbox_start_max_seconds: PositiveSeconds | None = Field(
        None, description="The longest start that a conversation may choose; by default `sandbox_start_seconds`."
    )
    sandbox_grace_seconds: PositiveSeconds = Field(
        5, description="What a sandbox's processes get to end by themselves."
    )

    kubernetes_context: str = Field(
        "",
        description="Context of the kubeconfig (`KUBECONFIG`) whose cluster has the sandboxes; left open: its current "
        "one, or in a pod the cluster of that pod. This and the next need `sandbox = kubernetes`.",
    )
    kubernetes_namespace: str = Field(
        "", description="Namespace of the sandboxes; left open: that of the context, or of this server's own pod."
    )
    kubernetes_storage_class: str = Field(
        "", description="Storage class of their volumes; left open: the cluster's own default."
    )
    kubernetes_runtime_class: str = Field(
        "", description="Runtime class of their pods, such as `gvisor` or `kata`; left open: the nodes' usual runtime."
    )
    kubernetes_pull_policy: Literal["IfNotPresent", "Always", "Never"] = Field(
        "IfNotPresent", description="When nodes pull their image: `Never` where you load it into the nodes yourself."
    )
    kubernetes_pull_secrets: Words = Field(
        (), description="Secrets of the namespace with which nodes pull images from a registry that asks who they are."
    )
    kubernetes_node_labels: NodeLabels = Field(
        (), description="Labels (`pool=sandboxes`) that a node has to have for their pods."
    )
    kubernetes_destinations: Networks = Field(
        (),
        description="Networks (`203.0.113.0/24`) that sandboxes with `sandbox_network = full` may reach, in place of "
        "all public addresses.",
    )

    runtime_startup_env_vars: Annotated[EnvironmentVariables, FromTable] = Field(
        {},
        description="Variables of everything that runs in sandboxes, beside those of their users; a table in the file, "
        "JSON in the variable. What looks like a secret, by its name or its value, is hidden wherever it appears.",
    )
    runtime_extra_deps: str = Field(
        "",
        max_length=MAX_COMMANDS,
        description="Shell commands that install in the image of sandboxes what it lacks, such as `apt-get update && "
        "apt-get install -y jq`. They run as root, in the network of the conversation, once for each image; the image "
        "that they make is kept and used by all. Not for secrets, nor with local sandboxes, which have no image.",
    )
    runtime_extra_deps_seconds: PositiveSeconds = Field(600, description="Bound on these commands.")
    users_set_up_sandboxes: bool = Field(
        True,
        description="Whether users may have `runtime_startup_env_vars` and `runtime_extra_deps` of their own. Where "
        "they may no more, what they had counts no more either, from the next start of each conversation on.",
    )

    # Git
    git_hosts: GitHosts = Field(
        {},
        description="Addresses of git providers where they are not the public ones, such as "
        '`github = "https://git.example.com"`; a table in the file, JSON in the variable. What a user stores with a '
        "token wins.",
    )
    git_user_name: OptionalLine = Field(
        None, description="Name on the commits of agents whose user gave none; by default what the image has."
    )
    git_user_email: OptionalLine = Field(
        None, description="Mail address on the commits of agents whose user gave none; by default what the image has."
    )
    git_clone_seconds: PositiveSeconds = Field(600, description="Bound on cloning a conversation's repository.")
    repository_setup_seconds: PositiveSeconds = Field(
        600, description="Bound on the script `.openhands/setup.sh` of a repository, which runs when it was cloned."
    )
    git_clone_depth: int = Field(0, ge=0, description="How many commits of each branch are cloned; 0: all.")
    verify_git_tokens: bool = Field(
        True,
        description="Whether a provider is asked if it knows a token before that is stored, and if it has a repository "
        "before a conversation begins with it.",
    )

    # Model
    llm_model: OptionalName = Field(
        None, description="Model where the user chose none, such as `openai/gpt-5`; without any, the built-in demo."
    )
    llm_api_key: OptionalKey = Field(None, description="Key for that model.")
    llm_base_url: OptionalBaseUrl = Field(None, description="Address of an OpenAI-compatible model server.")
    llm_profiles: ProfileTable = Field(
        {},
        description="Named configurations of models, with every option of each: tables by their names, such as "
        "`[llm_profiles.cheap]` ([below](#named-models)); JSON in the variable.",
    )
    llm_profile: OptionalProfile = Field(
        None, description="The profile of whoever chose no model, in place of the three settings above."
    )
    llm_purposes: PurposeTable = Field(
        {},
        description="Profiles for what is not an agent's own step: `condenser`, `draft_editor`, `title`, "
        "`security_analyzer`, `critic`. What is not named is done by the agent's model, and so is everything where "
        "that is reached with a key or an address of its user's own.",
    )
    llm_agents: AgentTable = Field(
        {}, description="Profiles for agents of one class, by the names of classes; others have `llm_profile`."
    )
    allow_user_llm_profiles: bool = Field(
        True, description="Whether users may have profiles of their own, beside those of the server."
    )

    # MCP
    mcp_config: OptionalServers = Field(
        None,
        description="MCP servers that every conversation has, before those of its user: `sse_servers`, `stdio_servers` "
        "and `shttp_servers` as on the settings page; a table in the file, JSON in the variable.",
    )
    mcp_programs: Programs = Field(
        "sandbox",
        description="Where MCP servers run that are programs. `sandbox`: in the sandbox of their conversation, whose "
        "image has to have them. `host`: on this machine, outside of the sandboxes, with the rights of this server; "
        "only for users that you trust with it. `never`: users may not configure any; your own run in the sandboxes.",
    )

    # Web search
    search_api_key: OptionalKey = Field(
        None,
        description="Key of the search service (Tavily, `tvly-…`) for users who have none of their own: with one, "
        "agents have the tool `tavily-search`. It is used in this process and enters no sandbox.",
    )
    search_url: BaseUrl = Field(
        "https://api.tavily.com", description="Address of the search service, or of one with the same interface."
    )
    verify_search_key: bool = Field(
        True,
        description="Whether the search service is asked if it knows a key before that is stored, and before a "
        "conversation begins with it.",
    )

    # Storage
    database_url: OptionalDatabaseUrl = Field(
        None,
        description="Address of PostgreSQL (`postgresql://user:password@host/name`); by default the database is the"
        " file `drydock.db` in the data folder.",
    )
    database_synchronous: Literal["FULL", "NORMAL"] = Field(
        "FULL", description="SQLite: `NORMAL` is faster and may lose the last moments when the power fails."
    )
    settings_store_class: OptionalName = Field(
        None, description="Dotted path of a `SettingsStore` of your own for users' settings; by default the database."
    )
    secrets_store_class: OptionalName = Field(
        None, description="Dotted path of a `SecretStore` of your own for users' secrets; by default the database."
    )
    blob_store_class: OptionalName = Field(
        None,
        description="Dotted path of a `BlobStore` of your own for large events; by default the data folder.",
    )
    disk_reserve_mb: int = Field(
        1024,
        ge=0,
        description="What is left free, in MiB, on the disks of the data folder and of the sandboxes: below it no "
        "sandbox is started and those that run are frozen, until there is room again. 0: nothing is.",
    )
    max_memory_mb: int | None = Field(
        None,
        ge=0,
        description="How much memory the server itself may have, in MiB; by default half of the machine's, or of what "
        "its control group may have. Above it, and while the machine has next to no memory left, nothing more begins, "
        "idle conversations are unloaded at once, and what is at work goes on. 0: no ceiling.",
    )

    # Log
    log_level: Literal["debug", "info", "warning", "error"] = Field("info", description="Least level that is logged.")
    log_format: Literal["text", "json"] = Field("text", description="Lines for people, or one JSON object each.")
    log_all_events: bool = Field(
        False,
        description="Whether each event of each conversation is logged at the level info, else at debug: its first "
        "2,000 bytes, secrets masked.",
    )

    otel: bool = Field(
        False,
        description="Whether a collector is told what the server does, as traces of OpenTelemetry: OTLP over HTTP, as "
        "its variables `OTEL_…` say (`OTEL_EXPORTER_OTLP_ENDPOINT`). Needs the extra `otel` (`drydock[otel]`).",
    )
    otel_told_hosts: Words = Field(
        (),
        description="Hosts of model servers (by the header `traceparent`) and MCP servers (by a call's `_meta`) that "
        "are told in which trace they are asked; `*`: all, also programs.",
    )

    _most = field_validator(
        "sandbox_network_max",
        "sandbox_memory_max_mb",
        "sandbox_cpus_max",
        "sandbox_processes_max",
        "sandbox_disk_max_mb",
        "sandbox_start_max_seconds",
    )(no_less_than_usual)
    _asks = field_validator("authenticator_class")(who_says_who_asks)
    _key = field_validator("tls_key")(key_of_a_certificate)
    _elsewhere = field_validator("oidc_issuer", "user_header")(of_accounts)
    _client = field_validator("oidc_client_id")(of_a_provider)
    _header = field_validator("user_header_from", "user_groups_header")(of_a_user_header)
    _somebody = field_validator("default_role")(for_somebody)
    _commands = field_validator("runtime_extra_deps")(with_an_image_to_install_in)
    _profiles = field_validator("llm_profiles")(usable_profiles)
    _named = field_validator("llm_profile", "llm_purposes", "llm_agents")(known_profiles)

    _remarks: tuple[str, ...] = PrivateAttr(())

    @property
    def remarks(self) -> tuple[str, ...]:
        """What is to be said about the file they were read from: keys that mean nothing here, and what to use."""
        return self._remarks

    def with_remarks(self, remarks: Iterable[str]) -> Self:
        """These settings, with what is to be said about their file."""
        self._remarks = tuple(remarks)
        return self

    @property
    def listens_on_all(self) -> bool:
        """Whether the bind address stands for all addresses of the machine."""
        return self.host in {"0.0.0.0", "::", "*"}  # noqa: S104 - it is compared, not bound

    @property
    def model_name(self) -> str:
        """The server's own model: the configured one, or the demo."""
        return self.llm_model or DEMO_MODEL
