"""The helpers shared by tests of several folders."""
