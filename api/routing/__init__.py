"""The way of a request to its partition's owner: partitioner, peers, and the proxy.

Imports of its package: ``http``.
"""
