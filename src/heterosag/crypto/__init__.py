"""Cryptography: labels (more to come), thin over `cryptography`."""
