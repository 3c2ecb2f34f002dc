"""The simulated disk: page cache, fsync, power loss, rot and lack of space."""
