"""Federated training over secure aggregation, on one machine: configuration, data, models, users, attacks, runs."""
