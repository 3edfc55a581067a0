"""The controller: decides from the log when the agent takes its next step."""
