"""The program that owns a sandbox's IPython kernel, in a process beside the runner, one for each kernel.

Only it needs jupyter_client, and its kernel ipykernel, from the image or mounted by a local sandbox; Python 3.8. It
speaks JSON lines over its standard streams.
"""

OMITTED = "drydock_omitted"
"""The kind of message with which our kernel (``inside``) says how many characters it left out."""
