.PHONY: sandbox-image
sandbox-image: ## Build the default sandbox image, drydock/sandbox:base
	@scripts/sandbox-image
