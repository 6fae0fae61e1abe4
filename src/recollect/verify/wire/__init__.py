"""The two wire protocols that the kit itself speaks, to ask an engine about its state without loading a driver."""
