"""An update as one vector, and its way into rings and back; knows no plan.

`arrays` joins named arrays, `rotation` spreads large elements over all, `quantize` rounds, `ring` adds and packs.
"""
