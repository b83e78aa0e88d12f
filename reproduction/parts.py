"""The parts of the paper that have a page each, and the paper's figure that a figure of ours stands beside."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["FIGURES", "PARTS", "Part"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A page: its file's name, its title, where it stands in the paper, and the items on it."""

    name: str
    title: str
    place: str
    items: tuple[str, ...]


PARTS = (
    Part(
        name="examples",
        title="Examples",
        place="Sections 3.2, 4.1 and 4.2, Appendix A",
        items=("examples-1-2", "examples-3-4", "appendix-a"),
    ),
    Part(
        name="grouping",
        title="Segment grouping and inference robustness",
        place="Section 4, Appendices B and G",
        items=("matrices", "properties", "theorem-1", "remarks", "inversion"),
    ),
    Part(
        name="dropouts",
        title="Dropouts",
        place="Theorem 3, Remark 5, Appendix E",
        items=("theorem-3", "remark-5"),
    ),
    Part(
        name="quantization",
        title="Quantization and convergence",
        place="Lemmas 1 and 2, Theorem 2, Proposition 1, Appendices C, D and H",
        items=("lemmas", "theorem-2", "no-quantization"),
    ),
    Part(
        name="costs",
        title="Communication and computation",
        place="Proposition 2, tables 3 and 4, Appendices F and J",
        items=("costs", "expansion", "computation", "comparison"),
    ),
    Part(
        name="experiment-1",
        title="Experiment 1: heterogeneous quantization",
        place="Section 5.1, Appendix J, figures 5 and 9 to 12",
        items=("experiment-1", "experiment-1-n100", "experiment-1-cifar", "labels", "networks"),
    ),
    Part(
        name="experiment-2",
        title="Experiment 2: Byzantine robustness",
        place="Section 5.2, Appendix J, figures 6 and 13",
        items=("experiment-2", "experiment-2-cifar", "remark-6"),
    ),
    Part(name="brea", title="BREA as a baseline", place="Section 1.2", items=("brea",)),
)

FIGURES = {
    "examples-3-4-coloured": "figure 3",
    "examples-3-4-faulty": "figure 4",
    "matrices-five": "figure 2",
    "matrices-six": "figure 7",
    "matrices-unequal": "figure 8",
    "costs-time": "figure 5b",
    "costs-time-100": "figure 9b",
    "costs-time-cifar": "figure 11d",
    "labels-figure-10-0.7": "figure 10a",
    "labels-figure-10-1": "figure 10b",
    "labels-figure-10-10": "figure 10c",
    "labels-figure-12-0.7": "first row of figure 12",
    "labels-figure-12-1": "second row of figure 12",
    "labels-figure-12-10": "third row of figure 12",
    "experiment-1-accuracy": "figure 5a",
    "experiment-1-n100-accuracy": "figure 9a",
    "experiment-1-cifar-accuracy": "figure 11",
    "experiment-2-accuracy": "figure 6a",
    "experiment-2-cifar-accuracy": "figure 6b",
    "experiment-2-cifar-dirichlet": "figure 13",
}
"""The paper's figure by item and plot; those that are not here are ours alone."""
