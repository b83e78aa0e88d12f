"""Theorem 2 and Remark 3: a convex problem solved with quantized gradients, against the bound.

Softmax regression on the embedded digits, pictures centred, a little regularised: convex and smooth, with a minimiser
that is known to many digits. Runs from zero are compared with the theorem's bound and fitted by a/J + b. Runs that
start at the minimiser have no distance to go, so that all they lose is the residual error, which Remark 3 says a
decreasing step and finer quantizers reduce.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from heterosag.simulation.engine import Simulation, aggregate
from heterosag.training.data import load
from reproduction.fits import Estimate, fit_floor, fit_power
from reproduction.outcome import Holds, Outcome, Plot, Scale, Series, Table, Trained, Verdict
from reproduction.plans import paper_plan
from reproduction.quantization import CHANCE
from reproduction.running import Job
from reproduction.settings import LEVELS

__all__ = ["Problem", "theorem_2"]

_Vector = npt.NDArray[np.float64]

_USERS, _LABELS = 25, 10
_REGULARISER = 1e-2
_BATCH = 2
_FINE = (256,) * 5
_MARKS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """Users' samples and labels (users, samples, features or labels), and the smoothness L of their mean loss."""

    x: _Vector
    y: _Vector
    smoothness: float

    @classmethod
    def draw(cls, rng: np.random.Generator) -> Problem:
        """The embedded digits, dealt to the users at random, as many to each."""
        data = load("digits")
        each = len(data.train_y) // _USERS
        dealt = rng.permutation(len(data.train_y))[: _USERS * each].reshape(_USERS, each)
        x = data.train_x[dealt].astype(np.float64)
        x -= x.mean(axis=(0, 1))
        flat = x.reshape(_USERS * each, -1)
        curvature = float(np.linalg.eigvalsh(flat.T @ flat / len(flat))[-1])
        return cls(x=x, y=np.eye(_LABELS)[data.train_y[dealt]], smoothness=curvature / 2 + _REGULARISER)

    @property
    def size(self) -> int:
        """Parameters of the model."""
        return int(self.x.shape[2]) * _LABELS

    @property
    def samples(self) -> int:
        """Samples of all users."""
        return int(self.x.shape[0] * self.x.shape[1])

    def loss(self, theta: _Vector) -> float:
        """The mean loss of all users."""
        logits = self.x @ theta.reshape(-1, _LABELS)
        peak = logits.max(axis=2, keepdims=True)
        log = np.log(np.exp(logits - peak).sum(axis=2)) + peak[:, :, 0]
        return float(np.mean(log - (logits * self.y).sum(axis=2)) + _REGULARISER / 2 * theta @ theta)

    def gradients(self, theta: _Vector, chosen: npt.NDArray[np.int64] | None = None) -> _Vector:
        """Every user's gradient, a row each: of all its samples, or of those chosen (a row of places for each user)."""
        x, y = self.x, self.y
        if chosen is not None:
            x, y = (np.take_along_axis(rows, chosen[:, :, None], axis=1) for rows in (x, y))
        logits = x @ theta.reshape(-1, _LABELS)
        chance = np.exp(logits - logits.max(axis=2, keepdims=True))
        chance /= chance.sum(axis=2, keepdims=True)
        slope: _Vector = (np.swapaxes(x, 1, 2) @ (chance - y) / x.shape[1]).reshape(len(x), -1)
        return slope + _REGULARISER * theta

    @property
    def widest_gradient(self) -> float:
        """What no element of a gradient exceeds: |x| times at most 1, and a tenth for the regulariser."""
        return 1.1 * float(np.abs(self.x).max())

    def minimise(self) -> _Vector:
        """The minimiser, by Nesterov's accelerated gradient steps to far below what the plots show."""
        theta, ahead = np.zeros(self.size), np.zeros(self.size)
        root = np.sqrt(_REGULARISER / self.smoothness)
        for _ in range(1500):
            after = ahead - self.gradients(ahead).mean(axis=0) / self.smoothness
            ahead = after + (1 - root) / (1 + root) * (after - theta)
            theta = after
        return theta


@dataclass(frozen=True, slots=True, kw_only=True)
class _Way:
    """How a run goes: levels of the quantizers (none: exact), samples of a gradient (0: all), how the step falls."""

    label: str
    levels: tuple[int, ...] | None = LEVELS
    batch: int = 0
    step: Callable[[int], float] = lambda _: 1.0


_WAYS = {
    "exact": _Way(label="full gradients, not quantized", levels=None),
    "constant": _Way(label="full gradients, levels 2, 6, 8, 10, 12"),
    "decreasing": _Way(label="the same, falling step", step=lambda number: (1 + number / 5) ** -0.5),
    "finer": _Way(label="full gradients, 256 levels", levels=_FINE),
    "sampled": _Way(label=f"batches of {_BATCH}, 256 levels", levels=_FINE, batch=_BATCH),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Descent:
    """One run: excess loss of the averaged and of the last model at the marks, errors of the mean gradient."""

    averaged: dict[int, float]
    last: dict[int, float]
    error: float
    sigma: float
    clipped: int


def _descend(problem: Problem, best: _Vector, start: _Vector, way: _Way, rounds: int, seed: int) -> _Descent:
    """Gradient descent on aggregated gradients, from the plain engine, which gives the bits of the secure one."""
    rng = np.random.default_rng([seed, 2])
    least = problem.loss(best)
    widest = problem.widest_gradient if way.batch else float(np.abs(problem.gradients(start)).max()) * 1.5
    plan = None
    if way.levels is not None:
        plan = paper_plan([5] * 5, way.levels, problem.size, design="paper", subgroup_size=5, value_range=widest)
    theta, total = start.copy(), np.zeros(problem.size)
    averaged, last, errors, clipped = {}, {}, [], 0
    for number in range(1, rounds + 1):
        gradients = problem.gradients(theta, _draw(problem, way, rng))
        truth = problem.gradients(theta).mean(axis=0) if way.batch else gradients.mean(axis=0)
        mean = truth
        if plan is not None:
            clipped += int(np.count_nonzero(np.abs(gradients) > widest))
            simulated = Simulation(secure=False, rounding_seed=seed * 1_000_003 + number)
            mean = aggregate(plan, gradients, simulate=simulated).vector
        errors.append(float(np.sum((mean - truth) ** 2)))
        theta = theta - way.step(number) / problem.smoothness * mean
        total += theta
        if number in _MARKS:
            averaged[number] = problem.loss(total / number) - least
            last[number] = problem.loss(theta) - least
    sigma = plan.quantization_error() if plan is not None else 0.0
    return _Descent(averaged=averaged, last=last, error=float(np.mean(errors)), sigma=sigma, clipped=clipped)


def _draw(problem: Problem, way: _Way, rng: np.random.Generator) -> npt.NDArray[np.int64] | None:
    """The samples of a round's gradients."""
    if not way.batch:
        return None
    each = problem.x.shape[1]
    return np.stack([rng.choice(each, way.batch, replace=False) for _ in range(_USERS)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Found:
    """The runs from zero and from the minimiser, a run a seed, and what the bound is made of."""

    far: Mapping[str, list[_Descent]]
    near: Mapping[str, list[_Descent]]
    step: float
    distance: float

    def bound(self, mark: int) -> float:
        """Theorem 2 for the levels of experiment 1, from zero."""
        return self.distance / (2 * self.step * mark) + self.floor("constant", self.far)

    def floor(self, name: str, runs: Mapping[str, list[_Descent]]) -> float:
        """The bound's second term: the step times sigma^2."""
        return self.step * runs[name][0].sigma

    def fit(self) -> tuple[Estimate, Estimate]:
        """a/J + b of the averaged model's excess over all seeds."""
        points = [(mark, excess) for run in self.far["constant"] for mark, excess in run.averaged.items()]
        return fit_floor([float(mark) for mark, _ in points], [excess for _, excess in points])

    def rate(self) -> Estimate:
        """By which power of J the averaged model's excess falls, without a residual error, in the later marks."""
        exact = self.far["exact"][0].averaged
        late = list(exact)[len(exact) // 2 :]
        return fit_power([float(mark) for mark in late], [exact[mark] for mark in late])


def _spread(values: Sequence[float]) -> Estimate:
    """The mean over seeds, with its standard error."""
    return Estimate(value=float(np.mean(values)), error=float(np.std(values, ddof=1) / np.sqrt(len(values))))


def _shown(found: Estimate) -> str:
    return f"{found.value:.3g} ({found.low:.3g} to {found.high:.3g})"


def theorem_2(job: Job) -> Outcome:
    """Convex runs with quantized gradients against the bound, with several seeds, a fit, and a decreasing step."""
    rounds, short, seeds = {
        Scale.TINY: (50, 20, 3),
        Scale.QUICK: (200, 50, 3),
        Scale.FULL: (1000, 200, 10),
    }[job.scale]
    problem = Problem.draw(np.random.default_rng(job.seed))
    best, zero = problem.minimise(), np.zeros(problem.size)
    drawn = range(job.seed, job.seed + seeds)

    def runs(name: str, start: _Vector, length: int) -> list[_Descent]:
        some = drawn if name != "exact" else drawn[:1]
        return [_descend(problem, best, start, _WAYS[name], length, seed) for seed in some]

    found = _Found(
        far={name: runs(name, zero, rounds) for name in ("exact", "constant", "sampled")},
        near={name: runs(name, best, short) for name in ("constant", "decreasing", "finer", "sampled")},
        step=1 / problem.smoothness,
        distance=float(best @ best),
    )
    trained = tuple(
        Trained(name=f"{name} from {where}", users=_USERS, samples=problem.samples, rounds=length, seeds=len(some))
        for where, group, length in (("zero", found.far, rounds), ("the minimiser", found.near, short))
        for name, some in group.items()
    )
    clipped = sum(run.clipped for group in (found.far, found.near) for some in group.values() for run in some)
    return Outcome(
        text=(
            f"Softmax regression on the embedded digits, regularised: convex, L = {problem.smoothness:.2f}, step 1/L, "
            f"{_USERS} users in five classes with 2, 6, 8, 10 and 12 levels, {rounds} rounds, {seeds} seeds of the "
            f"rounding and sampling, the range 1.5 times the widest first gradient, for batches the widest possible "
            f"({clipped} of all elements were clipped). Intervals are two standard errors on either side, over the "
            "seeds or of the regression.",
            "The falling step is 1/L over the square root of 1 + t/5. A run that starts at the minimiser has nothing "
            f"to gain, so that its excess is the residual error alone: these have {short} rounds.",
        ),
        verdicts=(*_bound_verdicts(found), *_residual_verdicts(found)),
        tables=(_excess_table(found), _residual_table(found)),
        plots=(_plot(found),),
        values={
            "inside": float(_inside(found)),
            "floor": found.fit()[1].value,
            "bound_floor": found.floor("constant", found.far),
        },
        runs=trained,
    )


def _inside(found: _Found) -> bool:
    """Whether the mean over the seeds is below the bound at every mark."""
    marks = found.far["constant"][0].averaged
    return all(np.mean([run.averaged[mark] for run in found.far["constant"]]) <= found.bound(mark) for mark in marks)


def _bound_verdicts(found: _Found) -> tuple[Verdict, ...]:
    inside = _inside(found)
    runs = found.near["sampled"]
    sampled, worst = max(
        ((_spread([run.averaged[mark] for run in runs]), mark) for mark in runs[0].averaged),
        key=lambda pair: pair[0].value,
    )
    limit = found.floor("sampled", found.near)
    errors = {name: _spread([run.error for run in found.near[name]]) for name in ("constant", "sampled")}
    sigmas = {name: found.near[name][0].sigma for name in errors}
    a, b = found.fit()
    rate = found.rate()
    allowed = found.distance / (2 * found.step), found.floor("constant", found.far)
    return (
        Verdict(
            claim="Theorem 2 for full gradients: F(average) - F* <= |theta0-theta*|^2/(2 eta J) + eta sigma^2",
            paper="for convex F, step 1/L",
            found="below the bound at every mark" if inside else "above the bound",
            holds=Holds.of(inside),
            note="the paper writes sigma where it means sigma^2, covers the mean only, not the median, and assumes "
            "that every user's gradient is unbiased for the global one, which sorted data breaks",
        ),
        Verdict(
            claim="Theorem 2 for stochastic gradients, as stated",
            paper="for any start and unbiased gradients",
            found=f"from the minimiser the excess after {worst} rounds is {_shown(sampled)}, the bound {limit:.3g}",
            holds=Holds.of(sampled.low <= limit),
            note=f"batches of {_BATCH}, 256 levels; it holds for full gradients: the bound leaves out the variance of "
            "sampling",
        ),
        Verdict(
            claim="The error of the mean gradient is at most sigma^2",
            paper="with stochastic gradients too",
            found="; ".join(f"{_WAYS[name].label}: {_shown(errors[name])} of {sigmas[name]:.3g}" for name in errors),
            holds=Holds.of(all(errors[name].low <= CHANCE * sigmas[name] for name in errors)),
            note="true for full gradients",
        ),
        Verdict(
            claim="Remark 3: the excess falls as O(1/J) to a residual error, a and b of a/J + b at most the bound's",
            paper=f"a <= {allowed[0]:.3g}, b <= {allowed[1]:.3g}",
            found=f"a = {_shown(a)}, b = {_shown(b)}; not quantized it falls as J to the {rate} in the later half of "
            "the marks",
            holds=Holds.of(a.low <= allowed[0] and b.low <= allowed[1], rate.low <= -1),
            note="read as: neither is above, and without quantization the power is -1 or below, intervals counted",
        ),
    )


def _residual_verdicts(found: _Found) -> tuple[Verdict, ...]:
    end = max(found.near["constant"][0].last)
    left = {
        name: {what: _spread([getattr(run, what)[end] for run in found.near[name]]) for what in ("averaged", "last")}
        for name in ("constant", "decreasing", "finer")
    }

    def smaller(name: str) -> Verdict:
        parts = {
            what: f"{_shown(left[name][what])} instead of {_shown(left['constant'][what])}"
            for what in ("averaged", "last")
        }
        return Verdict(
            claim=f"Remark 3: {'a decreasing step' if name == 'decreasing' else 'finer quantizers'} reduce"
            f"{'s' if name == 'decreasing' else ''} the residual error",
            paper="stated",
            found=f"after {end} rounds from the minimiser {parts['last']} in the last model, {parts['averaged']} in "
            "the averaged one",
            holds=Holds.of(*(left[name][what].high < left["constant"][what].low for what in ("last", "averaged"))),
            note=f"{_WAYS[name].label}; holds if both intervals are below",
        )

    return smaller("decreasing"), smaller("finer")


def _excess_table(found: _Found) -> Table:
    marks = list(found.far["constant"][0].averaged)
    return Table(
        name="excess",
        title="F(average) - F* from zero",
        head=("rounds J", *(_WAYS[name].label for name in found.far), "bound of Theorem 2"),
        rows=tuple(
            (
                str(mark),
                *(
                    _shown(_spread(values)) if len(values) > 1 else f"{values[0]:.3g}"
                    for values in ([run.averaged[mark] for run in some] for some in found.far.values())
                ),
                f"{found.bound(mark):.3g}",
            )
            for mark in marks
        ),
    )


def _residual_table(found: _Found) -> Table:
    end = max(found.near["constant"][0].last)
    return Table(
        name="residual",
        title=f"Residual error: {end} rounds from the minimiser",
        head=("run", "last model", "averaged model", "eta sigma^2", "error of the mean gradient", "sigma^2"),
        rows=tuple(
            (
                _WAYS[name].label,
                _shown(_spread([run.last[end] for run in some])),
                _shown(_spread([run.averaged[end] for run in some])),
                f"{found.floor(name, found.near):.3g}",
                _shown(_spread([run.error for run in some])),
                f"{some[0].sigma:.3g}",
            )
            for name, some in found.near.items()
        ),
    )


def _plot(found: _Found) -> Plot:
    marks = list(found.far["constant"][0].averaged)
    near = list(found.near["constant"][0].averaged)
    a, b = found.fit()
    zero, residual = "from zero", "from the minimiser"

    def rounded(values: Iterable[float]) -> tuple[float, ...]:
        return tuple(float(f"{max(value, 1e-9):.4g}") for value in values)

    def bound(label: str, values: Iterable[float]) -> Series:
        return Series(label=label, x=tuple(map(float, marks)), y=rounded(values), panel=zero, dashed=True)

    def line(name: str, runs: Sequence[_Descent], at: Sequence[int], panel: str) -> Series:
        excess = [[run.averaged[mark] for run in runs] for mark in at]
        several = len(runs) > 1
        return Series(
            label=_WAYS[name].label,
            x=tuple(map(float, at)),
            y=rounded(float(np.mean(one)) for one in excess),
            low=rounded(map(min, excess)) if several else (),
            high=rounded(map(max, excess)) if several else (),
            panel=panel,
        )

    series = [
        bound("bound of Theorem 2", (found.bound(mark) for mark in marks)),
        bound("fit a/J + b", (a.value / mark + b.value for mark in marks)),
        *(line(name, runs, marks, zero) for name, runs in found.far.items()),
        *(line(name, runs, near, residual) for name, runs in found.near.items()),
    ]
    return Plot(
        name="convergence",
        title="Convex runs: excess loss of the averaged model, mean over the seeds",
        kind="lines",
        x_label="rounds J",
        y_label="F(average) - F*",
        log_x=True,
        log_y=True,
        series=tuple(series),
    )
