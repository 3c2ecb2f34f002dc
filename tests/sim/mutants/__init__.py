"""Mutants: each safety rule broken once, which the simulator has to notice."""
