"""Small worlds of the protocol's cores, searched completely."""
