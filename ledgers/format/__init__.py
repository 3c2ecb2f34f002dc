"""The bytes of entries: runs, digests, entry headers, and the lists of entries that a bookie has.

Imports of its package: ``errors``, ``limits``.
"""
