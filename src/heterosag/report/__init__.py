"""What people look at: summaries, terminal tables, figures and pages."""
