"""The bytes of entries: runs, digests, entry headers, and the lists of what a bookie has.

Imports of its package: ``errors``, ``limits``.
"""
