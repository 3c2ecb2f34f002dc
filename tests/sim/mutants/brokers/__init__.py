"""Mutants of single parts of brokers, which the tests of these parts detect."""
