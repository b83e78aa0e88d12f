"""The paper, item by item: its examples, claims, figures and tables, re-created and judged."""
