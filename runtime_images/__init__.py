"""Contents of a sandbox: the runner program and the image definitions around it."""
