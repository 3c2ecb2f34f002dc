"""The log of a process on stderr: levels, forms, limits.

Imports of its package: ``console``, ``http``.
"""
