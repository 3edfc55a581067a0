"""HTTP below the routes: the gate before everything, protocols on the wire, the page and files."""
