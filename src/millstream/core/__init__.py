"""The language every room speaks: data, spaces, ports, topics, errors, bytes. NumPy and the standard library only."""
