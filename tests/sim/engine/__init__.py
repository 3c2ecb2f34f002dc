"""The simulated machine: virtual time, a seeded event loop, processes that die and pause."""
