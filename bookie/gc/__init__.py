"""The garbage collector: ledgers that the metadata no longer has, and their space.

Imports of its package: ``disk``, ``engine``, ``format``, ``storage``.
"""
