"""Every item of the paper that can be reproduced, by name, with an estimate of how long it takes."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module  # noqa: TID251 - items from a fixed table
from pathlib import Path

from heterosag.errors import UsageError
from reproduction.estimates import full_seconds
from reproduction.outcome import Outcome, Scale, Summary, load, save
from reproduction.running import Job
from reproduction.settings import data_for

__all__ = ["ITEMS", "Item", "choose", "command_of", "known_summaries", "run_item", "title_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """Something of the paper: where it stands there, what does it here, and about how many seconds that takes.

    `full` is None for the experiments, whose rounds were measured one by one (see estimates.py).
    """

    name: str
    title: str
    place: str
    function: str
    quick: float
    full: float | None
    data: str = ""

    @property
    def walk_through(self) -> bool:
        """Whether its steps are the point, and are printed."""
        return self.name.startswith(("example", "appendix"))

    def estimate(self, scale: Scale) -> float:
        """Seconds, on two cores."""
        if scale is Scale.FULL:
            return full_seconds(self.name) if self.full is None else self.full
        return 5.0 if scale is Scale.TINY else self.quick

    def run(self, job: Job) -> Outcome:
        """Reproduce it."""
        module, _, name = self.function.partition(":")
        work: Callable[[Job], Outcome] = getattr(import_module(f"reproduction.{module}"), name)
        return work(job)


def _item(
    name: str, title: str, place: str, function: str, seconds: tuple[float, float | None], data: str = ""
) -> Item:
    return Item(name=name, title=title, place=place, function=function, quick=seconds[0], full=seconds[1], data=data)


ITEMS: dict[str, Item] = {
    item.name: item
    for item in (
        _item(
            "examples-1-2",
            "Why different quantizers do not add up",
            "Examples 1 and 2",
            "examples:examples_1_2",
            (1, 1),
        ),
        _item("examples-3-4", "HeteroSAg on five groups", "Examples 3 and 4", "examples:examples_3_4", (1, 1)),
        _item("appendix-a", "Secure aggregation of three users", "Appendix A", "appendix:appendix_a", (1, 1)),
        _item(
            "matrices",
            "Segment-selection matrices",
            "Algorithms 1 and 2, figures 2, 7 and 8",
            "matrices:matrices",
            (1, 1),
        ),
        _item(
            "properties", "Properties of the matrices", "Appendix B, Properties 1 to 4", "matrices:properties", (1, 1)
        ),
        _item("theorem-1", "Inference robustness", "Theorems 1 and 4, section 4.2", "guarantees:theorem_1", (7, 7)),
        _item("theorem-3", "Leaks under dropout", "Theorem 3, Remark 5", "guarantees:theorem_3", (1, 12)),
        _item("remarks", "Remarks on robustness and splitting", "Remarks 1, 2 and 4", "remarks:remarks", (1, 1)),
        _item("lemmas", "Quantization error", "Lemmas 1 and 2, Proposition 1", "quantization:lemmas", (28, 28)),
        _item("theorem-2", "Convergence", "Theorem 2, Remark 3", "convergence:theorem_2", (25, 320)),
        _item(
            "costs",
            "Cost and time of experiment 1",
            "Table 4, figures 5b, 9b and 11d",
            "communication:cost_table",
            (2, 2),
        ),
        _item("networks", "What the networks see", "Tables 5 and 6, Appendix J", "networks:networks", (2, 2)),
        _item("labels", "Labels of the users", "Figures 10 and 12, Appendix J", "labels:labels", (1, 1)),
        _item("expansion", "Bandwidth expansion", "Section 1.1, Appendix F", "communication:expansion", (1, 1)),
        _item(
            "computation",
            "Computation and communication against users and elements",
            "Proposition 2, Appendix F",
            "scaling:proposition_2",
            (50, 500),
        ),
        _item("comparison", "SecAg, HeteroSAg and BREA", "Table 3, section 1.2", "computation:comparison", (40, 50)),
        _item(
            "no-quantization",
            "No quantization is FedAvg",
            "Footnote of section 5.1",
            "no_quantization:no_quantization",
            (8, 8),
        ),
        _item(
            "remark-6",
            "The median over blocks and over users",
            "Remark 6, Appendix I",
            "medians:remark_6",
            (14, 14),
        ),
        _item("remark-5", "Levels that fit the links", "Remark 5", "deadlines:remark_5", (6, 6)),
        _item(
            "experiment-1",
            "Experiment 1: MNIST, 25 users",
            "Figure 5, section 5.1",
            "experiment_1_verdicts:mnist_1",
            (50, None),
            "mnist",
        ),
        _item(
            "experiment-1-n100",
            "Experiment 1: MNIST, 100 users",
            "Figure 9a, Appendix J",
            "experiment_1_verdicts:mnist_1_hundred",
            (110, None),
            "mnist",
        ),
        _item(
            "experiment-1-cifar",
            "Experiment 1: CIFAR-10",
            "Figure 11, Appendix J",
            "experiment_1_verdicts:cifar_1",
            (55, None),
            "cifar10",
        ),
        _item(
            "experiment-2",
            "Experiment 2: MNIST under attack",
            "Figure 6a, section 5.2",
            "experiment_2_verdicts:mnist_2",
            (225, None),
            "mnist",
        ),
        _item(
            "experiment-2-cifar",
            "Experiment 2: CIFAR-10 under attack",
            "Figures 6b and 13",
            "experiment_2_verdicts:cifar_2",
            (150, None),
            "cifar10",
        ),
        _item(
            "brea",
            "BREA beside HeteroSAg",
            "Section 1.2",
            "against_brea:against_brea",
            (40, 700),
            "mnist",
        ),
        _item(
            "inversion",
            "What the server makes of what it decodes",
            "Section 3.2, Remark 1",
            "inversion:inversion",
            (12, 12),
        ),
    )
}


def choose(names: Sequence[str]) -> list[Item]:
    """Items by name; `all` is every one, in the paper's order."""
    if "all" in names:
        return list(ITEMS.values())
    unknown = [name for name in names if name not in ITEMS]
    if unknown:
        raise UsageError(f"no item is called {unknown[0]!r}: see python -m reproduction --list")
    return [item for item in ITEMS.values() if item.name in names]


def title_of(item: Item, job: Job) -> str:
    """An item's title, which says so where other data stand in for the paper's."""
    used = data_for(job.scale, item.data, job.data_dir) if item.data else ""
    return item.title if used == item.data else f"{item.title} (on the embedded {used}, not on {item.data})"


def run_item(item: Item, job: Job) -> Summary:
    """Reproduce an item and keep its summary in the folder."""
    began = time.perf_counter()
    outcome = item.run(job)
    summary = Summary(
        item=item.name,
        title=title_of(item, job),
        place=item.place,
        command=command_of(item, job),
        seed=job.seed,
        scale=job.scale,
        duration_seconds=round(_spent(job, item.name, time.perf_counter() - began), 3),
        outcome=outcome,
        commit="" if job.as_it_is or job.records else job.commit,
    )
    folder = job.folder / "summaries"
    known = folder / f"{item.name}.json"
    if job.scale is not Scale.FULL and known.exists() and load(known).scale is Scale.FULL:
        job.say(f"{item.name}: the summary at full scale in {folder} is kept; give another --out to keep both")
    else:
        save(summary, folder)
    return summary


def command_of(item: Item, job: Job) -> str:
    """The command that gives this summary; DATA stands for the folder of the paper's data, where it was read."""
    read = item.data and data_for(job.scale, item.data, job.data_dir) == item.data
    return (
        f"python -m reproduction {item.name} --scale {job.scale} --seed {job.seed}{' --data-dir DATA' if read else ''}"
        f"{f' --rounds {job.rounds}' if job.rounds else ''}{' --as-it-is' if job.as_it_is else ''}"
        f"{' --records reproduction/records' if job.records else ''}"
    )


def _spent(job: Job, item: str, now: float) -> float:
    """Seconds of the work behind a summary: this call's, or that of the runs it found finished, if they took longer."""
    from heterosag.storage.run_log import read_run
    from reproduction.records import kept, seconds_of

    folder = job.folder / "runs" / job.scale / item
    known = {} if job.records is None else kept(job.records / job.scale, item)
    own = {str(place.parent.relative_to(folder)): read_run(place.parent) for place in folder.glob("**/record.jsonl")}
    return max(now, sum(map(seconds_of, (known | own).values())))


def known_summaries(folder: Path) -> list[Summary]:
    """The summaries in a folder, in the paper's order."""
    return [load(path) for name in ITEMS if (path := folder / f"{name}.json").exists()]
