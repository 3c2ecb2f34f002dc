"""The brokers of a cluster: their directory, their load, and who should own what.

Imports of its package: ``config``, ``names``.
"""
