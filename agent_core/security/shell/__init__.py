"""Reading shell commands: their syntax, what they would run, and how risky that is."""
