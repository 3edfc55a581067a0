"""The IPython kernel that runs cells, and the program beside the runner that drives it."""
