"""The program that owns a sandbox's IPython kernel, in a process of its own beside the runner.

Only it needs jupyter_client, and its kernel ipykernel, from the image or shown by a local sandbox. The runner starts
one for each kernel and speaks to it in lines of JSON over its standard streams. Python 3.8 or newer.
"""
