"""The program that owns a sandbox's IPython kernel, in a process of its own beside the runner.

It is the one part that needs jupyter_client, and its kernel the one that needs ipykernel: from the image, or shown by
a local sandbox. The runner starts it when a cell is first run, one for each kernel, and speaks to it in lines of JSON
over its standard streams (``runner.kernel``). Python 3.8 or newer.
"""
