"""The parts of every benchmark: the limits of the machine, loads and latencies.

Imports of its package: ``console``, ``http``.
"""
