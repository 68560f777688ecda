"""Thin network shells around a port: one file a service, and the one way in which all of them are served."""
