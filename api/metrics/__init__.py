"""The metrics of all processes for Prometheus: one table of names, and what fills it.

Imports of its package: ``http``.
"""
