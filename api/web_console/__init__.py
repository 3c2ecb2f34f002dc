"""The console: a page for people, served by any broker.

Imports of its package: ``http``.
"""
