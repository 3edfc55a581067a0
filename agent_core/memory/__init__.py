"""Memory: the view of the log that a model is shown, and the subscriber that answers recalls."""
