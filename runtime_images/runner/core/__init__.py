"""Foundations of the runner: its loop, threads, processes, requests and journal."""
