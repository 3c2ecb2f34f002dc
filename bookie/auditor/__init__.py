"""The comparison of metadata with what the bookies have: the cluster metadata checker.

Imports of its package: ``identity``, ``replication``.
"""
