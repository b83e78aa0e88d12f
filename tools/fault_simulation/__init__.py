"""A simulated world for the whole protocol: one seed decides every event, and every secret."""
