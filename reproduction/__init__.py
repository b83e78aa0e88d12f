"""The HeteroSAg paper, item by item: what it claims, what is true, and the pages that say so."""
