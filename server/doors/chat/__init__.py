"""An OpenAI-compatible door: chat completions with a conversation behind each chat."""
