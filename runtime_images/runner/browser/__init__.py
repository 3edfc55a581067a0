"""The browser, and the program beside the runner that drives it."""
