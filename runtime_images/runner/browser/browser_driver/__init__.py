"""The program that owns a sandbox's browser, in a process beside the runner, started when one is first used.

Only it needs Playwright, from the image or mounted by a local sandbox, and Python 3.10. It speaks JSON lines over its
standard streams.
"""
