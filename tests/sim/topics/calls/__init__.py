"""Calls of a subscription over HTTP: their consumers, and the order that these see."""
