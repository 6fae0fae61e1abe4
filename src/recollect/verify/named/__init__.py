"""Stores that can be named on the command line, one module for each library, which is imported when it is used."""
