"""The auditor: the comparison of metadata with what the bookies have, and decommissioning.

Imports of its package: ``disk``, ``identity``, ``repair``, ``replication``.
"""
