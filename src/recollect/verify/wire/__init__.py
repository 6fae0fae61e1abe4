"""The two wire protocols that the kit itself speaks, to ask an engine how it is without loading a driver."""
