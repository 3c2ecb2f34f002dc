"""The formats of a bookie's files: records, small files, numbered files, the state of ledgers.

Imports of its package: ``disk``.
"""
