"""HTTP, the Python client, the command line, and the composition of processes."""
