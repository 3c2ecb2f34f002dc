"""Crash images: a bookie that dies at every write and sync, started again on what is left."""
