"""The garbage collector, which frees the space of ledgers that the metadata no longer has.

Imports of its package: ``disk``, ``engine``, ``format``, ``storage``.
"""
