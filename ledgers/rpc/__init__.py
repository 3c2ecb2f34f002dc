"""The bookie protocol: frames, handshake, authentication, and the client's connections.

Imports of its package: ``errors``, ``format``, ``host``, ``limits``, ``metastore``.
"""
