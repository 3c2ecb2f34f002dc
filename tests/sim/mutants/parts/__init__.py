"""Mutants of parts that no simulator runs, which the tests of these parts detect."""
