"""The storage of one shard: write cache, entry logs, index, flush, reads and compaction.

Imports of its package: ``config``, ``disk``, ``format``, ``journal``, ``metrics``.
"""
