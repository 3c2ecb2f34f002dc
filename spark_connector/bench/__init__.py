"""The Spark part of ``fencelog bench spark``, a process of its own (``main``).

Every figure of the connector stands beside that of a Python source or sink that does nothing: what
Spark itself takes. Imports of its package: ``source``, ``read``.
"""
