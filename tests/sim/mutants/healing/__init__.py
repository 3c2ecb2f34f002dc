"""Mutants of self-healing."""
