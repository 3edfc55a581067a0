"""The program that owns a sandbox's browser, in a process of its own beside the runner.

Only it needs Playwright, from the image or shown by a local sandbox. The runner starts it when a browser is first
asked for, and speaks to it in lines of JSON over its standard streams. Python 3.10 or newer, as Playwright.
"""
