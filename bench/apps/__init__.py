"""Three apps as a user of Flower has them: plain, with our two lines, and with Flower's own SecAgg+."""
