"""The brokers of a cluster: their directory, their load, and the choice of owners.

Imports of its package: ``config``, ``names``.
"""
