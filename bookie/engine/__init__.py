"""The meaning of requests: adds, reads, fences and LACs over the shards, and the boot.

Imports of its package: ``config``, ``disk``, ``format``, ``identity``, ``journal``, ``metrics``,
``storage``.
"""
