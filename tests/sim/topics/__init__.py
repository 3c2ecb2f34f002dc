"""Histories of topics: brokers that contend, producers, consumers, and the end of all."""
