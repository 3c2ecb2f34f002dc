"""The oracles: what was promised, and whether what came of it keeps the promise."""
