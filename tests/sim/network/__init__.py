"""The simulated network: connections that delay, break and lose one way."""
