# Drydock's commands. `make help` lists them; what they do is in scripts/.
.DEFAULT_GOAL := help

help: ## List the commands
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):[^#]*## /\1\t/' | expand -t 16

run: ## Set up what is missing and serve (HOST, PORT, DATA_DIR, SANDBOX=auto|docker|local|unconfined, CONFIG)
	@scripts/run

setup: ## Set up what is missing: .venv, the page, the sandbox
	@scripts/setup

sandbox-image: ## Build the default sandbox image, drydock/sandbox:base
	@scripts/sandbox-image

browser-image: ## Build the sandbox image with a browser, drydock/sandbox:browser
	@scripts/sandbox-image browser

wheel: ## Build the wheel, which `pip install` or `uvx` turns into a working `drydock serve` (OUT=dist)
	@scripts/wheel $(OUT)

bundle: ## Make one file with all of it for machines without a network (FILE=drydock.pyz)
	@scripts/bundle $(or $(FILE),drydock.pyz)

check: ## Check style and types and run the unit tests, without Docker and browser
	@scripts/check

test: ## Run every check and every test, on real parts
	@scripts/test

lint: ## Check style (ruff, eslint)
	@scripts/lint

types: ## Check types (mypy, tsc)
	@scripts/types

format: ## Put the Python code into the house format and mend what can be mended
	@scripts/setup --dev --no-sandbox
	@.venv/bin/ruff check --fix --quiet . ; .venv/bin/ruff format .

page-types: ## Write the page's types of the protocol again, when its snapshots have changed
	@.venv/bin/python scripts/page_types.py

chaos: ## Kill a server at every point, RUNS times (500) with local sandboxes and DOCKER_RUNS (100) with containers; disturb three of them behind a proxy, CLUSTER_RUNS times (100)
	@scripts/setup --dev
	@.venv/bin/python -m tests.chaos --runs $(or $(RUNS),500) --docker-runs $(or $(DOCKER_RUNS),100) --start $(or $(SEED),0)
	@.venv/bin/python -m tests.chaos.cluster --runs $(or $(CLUSTER_RUNS),100) --start $(or $(SEED),0)

storage: ## Have the storage fail at the n-th call, for all that a server is asked for and at rest (OF_EACH calls of each kind, SEED)
	@scripts/setup --dev
	@.venv/bin/python -m tests.storage.at_rest $(if $(OF_EACH),--of-each $(OF_EACH)) --seed $(or $(SEED),0)
	@.venv/bin/python -m tests.storage $(if $(OF_EACH),--of-each $(OF_EACH)) --seed $(or $(SEED),0)
	@.venv/bin/python -m tests.storage.storm --seed $(or $(SEED),0) --runs 3

bench: ## Measure the budgets, print a table, write JSON
	@scripts/setup --dev
	@env -u PYTHONDONTWRITEBYTECODE .venv/bin/python -m bench

soak: ## Let a server live through much in little time, and fail if anything grows (MINUTES, CONVERSATIONS, AT_WORK, CLIENTS, COMMAND_SECONDS, SANDBOX)
	@scripts/setup --dev
	@.venv/bin/python -m bench.soak $(if $(MINUTES),--minutes $(MINUTES)) $(if $(CONVERSATIONS),--conversations $(CONVERSATIONS)) \
		$(if $(AT_WORK),--at-work $(AT_WORK)) $(if $(CLIENTS),--clients $(CLIENTS)) \
		$(if $(COMMAND_SECONDS),--command-seconds $(COMMAND_SECONDS)) $(if $(SANDBOX),--sandbox $(SANDBOX))

lock: ## Lock the dependencies of pyproject.toml again (UPGRADE=1 for newer versions)
	@scripts/lock $(if $(UPGRADE),--upgrade)

clean: ## Remove everything that was made here, except data
	rm -rf .venv build dist drydock.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis test-results
	rm -rf frontend_stub/node_modules frontend_stub/dist tests/mcp_servers/node_modules
	find agent_core server runtime_images migrations tests bench scripts -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.PHONY: help run setup sandbox-image browser-image wheel bundle check test lint types format page-types chaos storage bench soak lock clean
