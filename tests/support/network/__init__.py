"""Clients and servers of tests, and what lies between them."""
