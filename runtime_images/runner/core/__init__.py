"""What every room of the runner is built on: its loop, threads, processes, requests and journal."""
