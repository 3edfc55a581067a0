"""The scripted model ``demo/tour``: it needs no key, and works in a real sandbox."""
