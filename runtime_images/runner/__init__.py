"""The runner: the program of ours that lives inside a sandbox.

It owns the shells, the files and the journal of results, and serves them over a byte stream of frames (`wire`). Python
3.8 or newer, standard library only: the folder is copied into any image and started with ``python3 -m runner serve``.
"""

VERSION = "0.1.0"
