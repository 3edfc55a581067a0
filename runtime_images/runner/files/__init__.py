"""Files of the workspace: read, edited, patched, searched, checked, moved and kept in snapshots."""
