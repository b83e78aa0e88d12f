"""A Flower app: PyTorch on scikit-learn's digits, aggregated by HeteroSAg."""
