"""From block sums to a result: `rules` combine block means, `combine` decodes, `clipping` moves the value range."""
