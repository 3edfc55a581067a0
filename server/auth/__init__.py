"""Who is asking, and whether the question may come from where it comes from."""
