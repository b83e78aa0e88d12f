"""A training run: rounds of local training with secure aggregation between them, recorded and resumable.

Everything random in a round is drawn from generators seeded with the run's seed, the round and the purpose, never from
one that goes on from round to round: a resumed run is the same run. Nothing secret comes from them.
"""

from __future__ import annotations

import math
import os
import time
import warnings
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors import SafetensorError

from heterosag.aggregation.clip_counts import Clipping, ClippingWarning
from heterosag.aggregation.clipping import AdaptiveRange, follow_norm, follow_quantile
from heterosag.aggregation.cohorts import users_at_fault
from heterosag.aggregation.combine import check_rule
from heterosag.aggregation.rules import Rule, find_rule
from heterosag.choices import RuleName
from heterosag.crypto.hashing import digest
from heterosag.crypto.identity import Identity
from heterosag.errors import (
    BudgetError,
    ExposedUsersError,
    FailedCohortsError,
    FaultyBlockError,
    HeteroSagError,
    TooFewSurvivorsError,
    UsageError,
)
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.summary import summarise, summarise_cohorts
from heterosag.protocol.context import RoundId
from heterosag.protocol.transitions import Phase
from heterosag.simulation.engine import Simulation, aggregate
from heterosag.storage.run_log import FAILED, RunWriter, describe_error, read_run
from heterosag.training import attacks, data, models
from heterosag.training import local as users
from heterosag.training.checkpoints import CHECKPOINT, State, read_checkpoint, write_checkpoint
from heterosag.training.combining import Gathered, Summed
from heterosag.training.config import TrainConfig
from heterosag.training.epochs import Epoch, build_plan, draw_members, generator, users_by_class
from heterosag.training.links import Links
from heterosag.training.local import LocalTraining, Work
from heterosag.training.privacy import BUDGETS, RunBudget

__all__ = ["CHECKPOINT", "Run", "split"]

_CONFIG = "config.toml"


def split(config: TrainConfig, data_set: data.DataSet) -> tuple[data.DataSet, list[npt.NDArray[np.int64]]]:
    """The data that a run of this configuration trains on, and every user's samples of it.

    Args:
        config: The run's settings.
        data_set: The data set that they name.

    Returns:
        The data set, thinned if they say so, and indices of each user's samples.
    """
    thin = data.thin(data_set, config.train_samples, generator(config, "samples"))
    rng = generator(config, "partition")
    return thin, data.partition(thin.train_y, config.users, config.partition, rng, alpha=config.alpha)


class Run:
    """One training run in a folder: `Run(config, folder).train()`, or `Run.resume(folder).train()` to go on.

    Args:
        config: All of the run's settings.
        folder: Where its record and checkpoints go.
        resume: Go on from the folder's last checkpoint.
        data_set: Saves reading it again.

    A subclass may combine a round's updates in another way (`combine`), as baselines do.
    """

    def __init__(
        self, config: TrainConfig, folder: Path, *, resume: bool = False, data_set: data.DataSet | None = None
    ) -> None:
        self.config = config
        self.folder = folder
        self.data, self.parts = split(config, data_set or data.load(config.data, config.data_dir))
        self.model = models.build(config.model, config.data, config.seed)
        models.check_model(config.model, self.model, self.data)
        vector = users.flatten(self.model)
        self._positive = users.positive_arrays(self.model)
        plan = build_plan(config, self._array_sizes())
        check_rule(plan, find_rule(self.rule))
        self._epoch = Epoch(config, plan)
        self._links = Links.of(config)
        count = config.attackers if config.attack != "none" else 0
        self.attackers = attacks.choose_attackers(self._everybody(), count, config.placement, self._rng("attackers"))
        self._identities: dict[User, Identity] | None = None
        if config.identities:
            self._identities = {user: Identity.generate() for user in range(config.users)}
        self._session = digest("run", config.to_toml().encode())[:16]
        self._budget = None if config.epsilon is None else RunBudget(config, folder)
        half_width = max(map(abs, config.first_range)) if config.epsilon is None else config.clip
        known = None if config.value_range is None else [half_width] * max(len(plan.arrays), 1)
        first = AdaptiveRange.start(vector, plan.arrays, half_widths=known)
        self._state = State(round=0, vector=vector, half_width=half_width, range=first)
        summary = _summary(plan, identities=config.identities)
        self._writer = RunWriter(folder, resume=resume)  # from here on nobody else writes this run
        try:
            if resume:
                self._state = self._load()
                self._writer.cut(self._state.round)
            else:
                self._begin(summary)
        except BaseException:
            self.close()
            raise

    @classmethod
    def resume(cls, folder: Path, *, data_set: data.DataSet | None = None) -> Run:
        """The run of a folder, from its last checkpoint on.

        Args:
            folder: Where it is.
            data_set: Saves reading it again.

        Returns:
            The run.

        Raises:
            UsageError: The folder holds no run to go on with, or its configuration was changed.
        """
        record = read_run(folder)
        try:
            config = TrainConfig.from_dict(record.config)
        except UsageError as error:
            raise UsageError(
                f"{folder} holds a run of version {record.version}, which this version cannot go on with ({error}): "
                "begin another run"
            ) from None
        written = folder / _CONFIG
        try:
            known = TrainConfig.from_toml(written.read_text(encoding="utf-8")) if written.exists() else config
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"cannot read {written}: {error}") from None
        if known not in (config, TrainConfig.from_toml(config.to_toml())):  # without what changes nothing
            raise UsageError(
                f"{written} is not what this run began with, and a run goes on as it began: put it back, or begin "
                "another run"
            )
        return cls(config, folder, resume=True, data_set=data_set)

    @property
    def plan(self) -> Plan | CohortPlan:
        """The plan of the current epoch, or its cohorts."""
        return self._epoch.plan

    @property
    def rounds_done(self) -> int:
        """Rounds behind this run."""
        return self._state.round

    @property
    def rule(self) -> RuleName | Rule:
        """How block means are combined."""
        return self.config.rule

    @property
    def vector(self) -> npt.NDArray[np.float32]:
        """The model's parameters as one vector."""
        return self._state.vector

    def train(self, progress: Callable[[dict[str, Any]], None] | None = None) -> None:
        """Run the rounds that are left; an interrupt leaves a checkpoint of the last whole round.

        Args:
            progress: Called with every round's line.
        """
        start = time.perf_counter()
        end: dict[str, Any] = {}
        try:
            while self._state.round < self.config.rounds:
                try:
                    line, after = self._round(self._state.round + 1)
                except BudgetError as error:
                    end = {"budget": str(error)}
                    break
                self._writer.write("round", line)
                self._go_on(after)
                if self._state.round % self.config.checkpoint_every == 0:
                    self._save()
                if progress is not None:
                    progress(line)
            self._writer.write("end", {"rounds": self._state.round, "seconds": time.perf_counter() - start, **end})
        finally:
            self._save()
            self.close()

    def close(self) -> None:
        """Close the record; `train` does it by itself."""
        self._writer.close()

    def combine(self, gathered: Gathered) -> Summed:
        """A round's updates to one step of the model, by secure aggregation.

        Args:
            gathered: The plan of the round, the updates, and who drops out or is malicious.

        Returns:
            The step, the users in it, and what the record says of the round beyond what every round says.

        Raises:
            TooFewSurvivorsError: Too many users dropped out; like the next three it ends the round, not the run.
            FaultyBlockError: The rule cannot leave out a sum that honest users cannot have made.
            ExposedUsersError: The ledger refuses to reveal the sum of so few users.
            FailedCohortsError: No cohort came to a result.
        """
        with warnings.catch_warnings():  # a range that follows the updates needs none, a fixed one has it in its line
            warnings.simplefilter("ignore", ClippingWarning)
            result = aggregate(
                gathered.plan,
                gathered.updates,
                rule=self.rule,
                simulate=Simulation(
                    dropped=gathered.dropped,
                    secure=self.config.secure,
                    rounding_seed=self._rounding_seed,
                    malicious=gathered.malicious,
                ),
                identities=self._identities,
                workers=self.config.workers,
                guard=gathered.epoch.guard,
                round_id=RoundId(session=self._session, number=gathered.number, model=self._state.fingerprint()),
            )
        line = self._links.describe(gathered.epoch, result)
        return Summed(vector=result.vector, survivors=result.survivors, line=line, result=result)

    def _begin(self, summary: dict[str, Any]) -> None:
        """Write the run's settings, in the place of nobody else's."""
        found = [name for name in (_CONFIG, CHECKPOINT, BUDGETS) if os.path.lexists(self.folder / name)]
        if found:
            self._writer.discard()
            raise UsageError(
                f"{self.folder} holds {' and '.join(found)} already, which this run would write over: choose another "
                "folder (--out)"
            )
        self._writer.begin(self.config.to_dict(), summary, command=self.config.to_command())
        (self.folder / _CONFIG).write_text(self.config.to_toml(), encoding="utf-8")

    def _go_on(self, after: State) -> None:
        """Take over a round's state; if it proved users faulty, the next rounds are an epoch without them."""
        if after.faulty != self._state.faulty and self.config.participation == 1:
            left = [sorted({*group} - {*after.faulty}) for group in users_by_class(self.config)]
            self._epoch = self._epoch.without(left)
        self._state = after

    def _everybody(self) -> Plan | CohortPlan:
        """A plan of all users, who is in which subgroup."""
        if len(self.plan.users) == self.config.users:
            return self.plan
        plain = replace(self.config, epsilon=None, min_block_survivors=None, view="server", adaptive_clip=False)
        return build_plan(plain, self._array_sizes())

    def _array_sizes(self) -> list[int]:
        """The elements of each array of an update."""
        return [array.numel() for array in models.arrays_of(self.model)]

    # --- one round ----------------------------------------------------------------------------------------------

    def _round(self, number: int) -> tuple[dict[str, Any], State]:
        """One round's line of the record, and the state after it; this run's own changes only when the line stands."""
        began = time.perf_counter()
        epoch, members = self._participants(number)
        plan = epoch.plan
        updates = self._updates(number, members)
        trained = time.perf_counter()
        private = self._budget is not None  # noise stands for what is not a number, and nothing exact is recorded
        whole = [place for place, row in enumerate(updates) if private or np.isfinite(row).all()]
        diverged = [user for place, user in enumerate(members) if place not in set(whole)]
        hostile = set(self.attackers)
        plan = self._settle(plan, updates, [place for place in whole if members[place] not in hostile])
        spent = None if self._budget is None else self._budget.charge(plan, members)
        dropped, missed = self._links.drop_out(number, epoch, members)
        dropped |= dict.fromkeys(diverged, Phase.MASK.value)  # a client refuses to send what is not a number
        line: dict[str, Any] = {
            "round": number,
            "learning_rate": self.config.learning_rate_at(number),
            "range": list(plan.value_range),
            "scales": list(plan.scales),
            "participants": len(members),
            "dropped": {phase.value: sum(p == phase.value for p in dropped.values()) for phase in Phase},
            "missed_deadline": missed,
            "diverged": None if private else len(diverged),
            "error": None,
        } | ({} if spent is None else {"privacy": spent})
        malicious = [user for user in self.attackers if user in set(members)]
        try:
            if not whole:
                raise TooFewSurvivorsError("min_survivors", "nobody has an update to send")
            sent: dict[User, npt.NDArray[np.float32]] = {members[place]: updates[place] for place in whole}
            summed = self.combine(
                Gathered(number=number, epoch=epoch, plan=plan, updates=sent, dropped=dropped, malicious=malicious)
            )
        except (TooFewSurvivorsError, FaultyBlockError, ExposedUsersError, FailedCohortsError) as error:
            line |= _describe_failure(error, len(diverged))
            after = replace(self._state, round=number)
        else:
            line |= summed.line
            kept = set(summed.survivors) - set(malicious)
            honest = [] if private else [place for place in whole if members[place] in kept]
            line |= _compare_with_mean(summed.vector, updates[honest])
            if self.config.range_rule == "fixed" and summed.result is not None:
                line["clipping_warning"] = Clipping.of(plan, summed.result.combined).warning
            after = self._learn(number, plan, summed, line)
            users.load_vector(self.model, after.vector)
        after = replace(after, faulty=(*self._state.faulty, *line["faulty_users"]))
        line["ledger"] = epoch.summary()
        line |= self._judge_model() | {"model": after.fingerprint().hex()}
        line |= {"seconds": {"training": trained - began, "aggregation": time.perf_counter() - trained}}
        return line, after

    def _judge_model(self) -> dict[str, float | None]:
        """The model on the test data; a loss that is no number is None, which JSON can hold."""
        judged = users.evaluate(self.model, self.data)
        return {"accuracy": judged.accuracy, "loss": judged.loss if math.isfinite(judged.loss) else None}

    @property
    def _rounding_seed(self) -> int | None:
        """Rounding repeats with the seed; noise that is to hide something never does."""
        return None if self._budget is not None and self.config.secure else self.config.seed

    def _participants(self, number: int) -> tuple[Epoch, list[int]]:
        """The epoch and the users of a round; with partial participation they are drawn, for an epoch of their own."""
        if self.config.participation == 1:
            return self._epoch, [int(user) for user in self.plan.users]
        drawn = draw_members(self.config, number)
        members = [[user for user in group if user not in set(self._state.faulty)] for group in drawn]
        return self._epoch.without(members), [user for group in members for user in group]

    def _updates(self, number: int, members: list[int]) -> npt.NDArray[np.float32]:
        """What every member sends: its honest update, or what its attack makes of it."""
        config = self.config
        training = LocalTraining(
            epochs=config.local_epochs, batch_size=config.batch_size, learning_rate=config.learning_rate_at(number)
        )
        labels = None
        hostile = [place for place, user in enumerate(members) if user in set(self.attackers)]
        if config.attack == "label-flip" and hostile:
            flipped = attacks.flip_labels(self.data.train_y, self.data.labels)
            labels = [flipped if place in set(hostile) else self.data.train_y for place in range(len(members))]
        work = Work(
            data=self.data,
            parts=[self.parts[user] for user in members],
            training=training,
            rngs=[self._rng("batches", number, user) for user in members],
            labels=labels,
        )
        updates = users.train(self.model, work)
        if hostile:
            rng = self._rng("attack", number)
            updates[hostile] = attacks.tamper(config.attack, updates[hostile], config.attack_strength, rng)
        return updates

    def _settle(
        self, plan: Plan | CohortPlan, updates: npt.NDArray[np.float32], honest: list[int]
    ) -> Plan | CohortPlan:
        """The plan with a round's range: the state's, or for `minmax` that of the honest updates, seen in plaintext."""
        if plan.noise_multiplier:
            return plan.with_value_range(self._state.half_width)
        if self.config.range_rule == "adaptive":
            return self._state.range.settle(plan)
        if self.config.range_rule == "minmax" and honest:
            theirs = updates[honest]
            low, high = float(theirs.min()), float(theirs.max())
            return plan.with_value_range((low, high) if low < high else (low, low + 1e-6))
        if self.config.range_rule == "fixed":
            return plan.with_value_range(self.config.first_range)
        return plan.with_value_range(self._state.half_width)

    def _learn(self, number: int, plan: Plan | CohortPlan, summed: Summed, line: dict[str, Any]) -> State:
        """The state after a round that ended well: the model moves, and the range follows what was aggregated."""
        vector = (self._state.vector + summed.vector).astype(np.float32)
        half_width, follows, result = self._state.half_width, self._state.range, summed.result
        line["held_positive"] = self._positive.hold(self._state.vector, vector)
        if result is None:
            return State(round=number, vector=vector, half_width=half_width, range=follows)
        if result.within_norm is not None:
            half_width = follow_norm(half_width, result.within_norm)
            line["privacy"]["within_norm"] = result.within_norm
        if self.config.range_rule == "quantile" and not plan.noise_multiplier:
            half_width = follow_quantile(half_width, line["clipped_fraction"], self.config.quantile)
        elif self.config.range_rule == "adaptive" and not plan.noise_multiplier:
            follows = AdaptiveRange.from_state_dict(follows.state_dict())  # the state before stays as it was
            follows.follow(plan, result.combined)
        return State(round=number, vector=vector, half_width=half_width, range=follows)

    # --- generators and checkpoints -----------------------------------------------------------------------------

    def _rng(self, purpose: str, number: int = 0, user: int = 0) -> np.random.Generator:
        return generator(self.config, purpose, number, user)

    def _save(self) -> None:
        write_checkpoint(self.folder / CHECKPOINT, self._state, self._epoch.to_arrays())

    def _load(self) -> State:
        path = self.folder / CHECKPOINT
        try:
            state, ledgers = read_checkpoint(path)
            if not {*state.faulty} <= set(range(self.config.users)):
                raise UsageError(f"the run has no users {sorted({*state.faulty} - set(range(self.config.users)))}")
            self._go_on(replace(self._state, faulty=state.faulty))
            self._epoch.load(ledgers)
        except (OSError, KeyError, ValueError, SafetensorError) as error:
            raise UsageError(f"cannot go on from {path}: {error}") from None
        if state.vector.shape != self._state.vector.shape:
            raise UsageError(
                f"{path} belongs to a model of {state.vector.size} parameters, this one has {self._state.vector.size}"
            )
        if state.range.arrays != self._state.range.arrays:
            raise UsageError(f"{path} belongs to a model of other arrays")
        users.load_vector(self.model, state.vector)
        return state


def _summary(plan: Plan | CohortPlan, *, identities: bool) -> dict[str, Any]:
    if isinstance(plan, CohortPlan):
        return summarise_cohorts(plan, identities=identities)
    return summarise(plan, identities=identities)


def _describe_failure(error: HeteroSagError, diverged: int) -> dict[str, Any]:
    """What a round's line says where there is no aggregate."""
    found = FAILED | describe_error(error)
    if diverged:
        found["error"]["message"] += f"; training of {diverged} users diverged: lower learning_rate"
    found["faulty_users"] = users_at_fault(error.errors if isinstance(error, FailedCohortsError) else {0: error})
    return found


def _compare_with_mean(vector: npt.NDArray[Any], honest: npt.NDArray[np.float32]) -> dict[str, float | None]:
    """How far an aggregate is from the mean of the honest survivors' updates, and how large that is.

    None where nobody honest is given. In float64, where not even the updates of a model that diverges overflow.
    """
    if not len(honest):
        return {"aggregate_error": None, "aggregate_rms": None}
    truth = honest.mean(axis=0, dtype=np.float64)
    return {
        "aggregate_error": float(np.sqrt(np.mean((vector - truth) ** 2))),
        "aggregate_rms": float(np.sqrt(np.mean(truth**2))),
    }
