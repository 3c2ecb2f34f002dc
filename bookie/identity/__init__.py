"""The identity of a bookie: its cookie, its directories, and their claim at every start.

Imports of its package: ``config``, ``disk``, ``format``, ``storage``.
"""
