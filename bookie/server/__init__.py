"""The server of the bookie protocol, and a bookie that is called in the same process.

Imports of its package: ``engine``.
"""
