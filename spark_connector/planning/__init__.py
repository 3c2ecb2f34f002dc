"""The driver's part, shared by batch and stream reads: options, offsets, and the plan of the tasks.

Everything but ``service`` is a pure function of values. Imports of its package: nothing.
"""
