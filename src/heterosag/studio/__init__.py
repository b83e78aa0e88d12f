"""The studio: a local page for choosing and inspecting plans, watching runs, and stepping through a round."""
