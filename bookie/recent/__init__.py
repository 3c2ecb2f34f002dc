"""The recent check: ledgers that are new, or were changed, are compared with their bookies' lists.

Imports of its package: ``auditor``, ``replication``.
"""
