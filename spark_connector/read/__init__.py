"""The executors' part: entries read from bookies, as Arrow batches.

Imports of its package: ``planning``, ``worker``.
"""
