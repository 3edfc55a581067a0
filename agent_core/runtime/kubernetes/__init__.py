"""Sandboxes in the pods of a Kubernetes cluster."""
