"""Re-replication: the ledgers that lack copies, and the worker that copies them to other bookies.

Imports of its package: ``disk``, ``repair``.
"""
