"""Tools with which an agent makes pull and merge requests, carried out by the server with its user's tokens."""
