"""Cryptography, thin over `cryptography`: labels, keys, seals, keystreams, Shamir's sharing, identities."""
