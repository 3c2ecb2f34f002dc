"""The port to files and threads, the POSIX adapter, RocksDB, free space and rate limits.

Imports of its package: ``config``.
"""
