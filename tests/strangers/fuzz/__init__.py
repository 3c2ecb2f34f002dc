"""Broken input for every parser that a stranger can reach."""
