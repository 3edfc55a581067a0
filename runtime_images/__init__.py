"""What runs inside a sandbox: the runner program and the image definitions around it."""
