"""The journal: group commit with one fsync for many requests, and replay after a crash.

Imports of its package: ``disk``, ``format``, ``metrics``.
"""
