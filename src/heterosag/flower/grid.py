"""The server's side: a Grid that turns a strategy's train and evaluate messages into secure rounds.

`SecureGrid(grid, ...).start(strategy, ...)` works with any strategy that averages replies: the strategy sends its train
messages, the grid runs the trips of the protocol with the nodes and gives back one reply that holds the aggregate, as
if one client had trained it. Evaluate messages become a round that sums metrics and nothing else. A round that fails
gives back an error reply, so that the strategy logs it and goes on with the next round.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from logging import INFO, WARNING
from pathlib import Path
from typing import Any

from flwr.app import ArrayRecord, Error, Message, MetricRecord
from flwr.common.constant import ErrorCode
from flwr.common.logger import log
from flwr.serverapp import Grid
from flwr.serverapp.strategy import Result, Strategy

from heterosag.aggregation.rules import find_rule
from heterosag.choices import AssignmentName, RuleName
from heterosag.errors import HeteroSagError, UsageError
from heterosag.flower.epochs import Epochs
from heterosag.flower.evaluation import Evaluations
from heterosag.flower.exchange import Exchange
from heterosag.flower.failures import Failures
from heterosag.flower.messages import is_evaluate, is_train, run_config_digest
from heterosag.flower.options import check_options
from heterosag.flower.passing import PassingGrid
from heterosag.flower.privacy import GridBudget, Privacy
from heterosag.flower.ranges import Ranges, RangeState
from heterosag.flower.resuming import GridState
from heterosag.flower.rounds import Round, Work
from heterosag.flower.run_log import Recorder
from heterosag.flower.strategies import check_strategy, weight_of
from heterosag.flower.training import Training
from heterosag.flower.trips import Trips
from heterosag.plan import CohortPlan, Plan, User
from heterosag.plan.cohorts import COHORT_SIZE
from heterosag.vector.quantize import ValueRange

__all__ = ["Round", "SecureGrid"]

_USUAL_WEIGHT = "num-examples"
_UNWEIGHTED = (
    "nodes count alike, whatever their number of examples, by which plain Flower weights them: for weights give "
    "SecureGrid(max_weight=100, weight_unit=N), where N is a hundredth of the most examples that a node has, rounded "
    "up; max_weight=1 says that no weights are meant"
)


class SecureGrid(PassingGrid):
    """A Grid whose train messages are aggregated securely.

    Args:
        grid: The grid that the ServerApp was given.
        plan: The plan of all nodes of a train message, users by node id as text; or a `CohortPlan`. Leave it out and
            the grid plans: nodes name their class or rate in their first message.
        levels: One quantizer level for each class, slowest first.
        rate_limits: The rates in Mb/s between the classes, for nodes that name a rate.
        rule: How block means are combined (mean, median, trimmed_mean).
        value_range: The (first) range, three standard deviations of an update's elements: a half width, or a pair
            (default: the plan's, or from the model).
        adapt_range: Whether the range, and the scale of each array, then follow the updates.
        max_weight: Largest weight of a node; 1 means unweighted (default: unweighted, with a warning). Weights cost no
            bits; a node above it is capped, and says so in its own log.
        weight_unit: Examples that make a weight of one.
        weighted_by: The name of the train function's metric that counts examples (default: the strategy's
            `weighted_by_key`, or num-examples).
        metrics: Names of the metrics that are averaged over everybody, securely (default: all that the app's functions
            return, up to eight).
        exclude: Patterns of the names of arrays that are not aggregated, such as `*.running_var`; they stay as the
            server's model has them, and so do arrays of integers and booleans.
        tied: By name, the array whose values it shares: it goes once, and comes back under both names.
        directory: Every node's public key, which turns identities on.
        privacy: Noise inside the sums, within this target: `heterosag.flower.Privacy`. Weights, metrics and secure
            evaluation, whose sums would be exact, are then off.
        run_config: The run's configuration, `context.run_config`, as every node must see it (default: as most nodes
            see it, which is logged).
        plaintext_evaluation: Whether nodes that evaluate in plaintext (`mod(evaluate="plaintext")`) are asked for their
            own metrics, which the strategy averages with the others'; unless said, they are asked for none.
        assignment: Who assigns nodes to subgroups, with identities: `enrolled`, the nodes draw it together when an
            epoch begins, or `server`, which the nodes must allow.
        cohort_size: Nodes that a cohort has at most: more are split into cohorts, each with a plan and keys of its own,
            whose stages ride on the same trips. A node is hidden among its own cohort.
        prepare: Whether the next round's keys and shares ride on this round's trips, so that a steady round takes two
            trips instead of four (three instead of five with identities).
        timeouts: Seconds for each stage, by its name, or one number.
        options: Anything else that `Plan.build` takes.
        record: A folder of records, in which this run's is made, named by Flower's number of the run;
            `heterosag report` reads it. `recorded` puts your evaluation into it, and `close` ends it.
        wire_bytes: Whether to count all that Flower carries, in `Round.wire_sent` and `wire_received` (default: for a
            run with a record).
        hide_sets_below: End rounds that, with those before in the same epoch, would reveal the sum of fewer users than
            this.
        stop_after: Failed rounds of training in a row that stop the run with a `StoppedRunError`; 0 for never. A round
            that failed because of nodes who are then left out does not count.

    `rounds` is a `Round` for each round of training so far, `evaluations` one for each secure evaluation;
    `record_folder` is where this run's record is, None before the first round that has a plan.
    """

    def __init__(
        self,
        grid: Grid,
        *,
        plan: Plan | CohortPlan | None = None,
        levels: Sequence[int] = (16,),
        rate_limits: Sequence[float] = (),
        rule: RuleName = "mean",
        value_range: ValueRange | float | None = None,
        adapt_range: bool = True,
        max_weight: int | None = None,
        weight_unit: int = 1,
        weighted_by: str | None = None,
        metrics: Sequence[str] = (),
        exclude: Sequence[str] = (),
        tied: Mapping[str, str] | None = None,
        directory: Mapping[str, bytes] | None = None,
        privacy: Privacy | None = None,
        run_config: Mapping[str, Any] | None = None,
        plaintext_evaluation: bool = False,
        assignment: AssignmentName = "enrolled",
        cohort_size: int = COHORT_SIZE,
        prepare: bool = True,
        timeouts: float | Mapping[str, float] | None = None,
        options: Mapping[str, Any] | None = None,
        record: str | Path | None = None,
        wire_bytes: bool | None = None,
        hide_sets_below: int = 0,
        stop_after: int = 3,
    ) -> None:
        check_options(
            plan=plan,
            privacy=privacy,
            value_range=value_range,
            levels=levels,
            rate_limits=rate_limits,
            rule=rule,
            max_weight=1 if max_weight is None else max_weight,
            weight_unit=weight_unit,
            weighted_by=_USUAL_WEIGHT if weighted_by is None else weighted_by,
            metrics=metrics,
            exclude=exclude,
            tied=tied,
            directory=directory,
            assignment=assignment,
            cohort_size=cohort_size,
            timeouts=timeouts,
            options=options,
            hide_sets_below=hide_sets_below,
            stop_after=stop_after,
        )
        levels, weight_unit, hide_sets_below = [int(level) for level in levels], int(weight_unit), int(hide_sets_below)
        if max_weight is None and plan is None and privacy is None:
            log(WARNING, _UNWEIGHTED)
        self._weight_named = weighted_by is not None
        max_weight, weighted_by = int(max_weight or 1), weighted_by or _USUAL_WEIGHT
        if privacy is not None:
            if max_weight > 1:
                log(WARNING, "weights are off under privacy: every node counts alike")
            log(
                INFO, "under privacy nodes count alike, and no metrics or secure evaluations: their sums would be exact"
            )
            value_range, adapt_range = privacy.clipping_norm, False
        self._ranges = Ranges(value_range, adapts=adapt_range, given=plan)
        known: dict[User, bytes] | None = (
            None if directory is None else {str(node): key for node, key in directory.items()}
        )
        combine_by = find_rule(rule)
        self._epochs = Epochs(
            given=plan,
            levels=levels,
            rate_limits=rate_limits,
            options=options or {},
            rule=combine_by,
            max_weight=max_weight,
            weighted_by=weighted_by,
            directory=known,
            assignment=assignment,
            cohort_size=cohort_size,
            scaled=adapt_range,
            privacy=privacy,
        )
        mean, signs = rule == "mean", directory is not None
        self._budget = None if privacy is None else GridBudget(privacy, mean=mean, identities=signs)
        self._trips = Trips(grid, timeouts, counted=record is not None if wire_bytes is None else wire_bytes)
        self._exchange = Exchange(
            self._trips,
            self._epochs,
            directory=known,
            run_config=None if run_config is None else run_config_digest(run_config),
            terms={
                "weighted-by": weighted_by,
                "weight-unit": weight_unit,
                "metrics": list(metrics),
                "exclude": list(exclude),
                "tied": [name for pair in (tied or {}).items() for name in reversed(pair)],
            },
            hide_sets_below=hide_sets_below,
            prepare=prepare,
        )
        super().__init__(grid)
        self._class_count = None if plan is not None or len(levels) == 1 else len(levels)
        self._recorder = (
            None if record is None else Recorder(record, _run_name(grid), rule, weighted_by, identities=signs)
        )
        self._failures = Failures(stop_after)
        self._training = Training(
            self._trips,
            self._exchange,
            self._epochs,
            self._ranges,
            budget=self._budget,
            rule=combine_by,
            weight_unit=weight_unit,
            exclude=exclude,
            tied=tied or {},
        )
        self._evaluations = Evaluations(
            grid,
            self._exchange,
            self._epochs,
            rule=combine_by,
            metrics=self._training.metrics_of,
            weight_unit=weight_unit,
            private=privacy is not None,
            plaintext=plaintext_evaluation,
        )
        self._checked = False
        self.record_folder: Path | None = None
        self.rounds: list[Round] = []
        self.evaluations = self._evaluations.done

    # --- what a strategy sends ------------------------------------------------------------------------------------

    def send_and_receive(self, messages: Iterable[Message], *, timeout: float | None = None) -> Iterable[Message]:
        """A secure round for train messages and for evaluate messages, one reply for all of them.

        Whatever else a strategy sends passes through, to be refused by nodes that have the mod.
        """
        listed = list(messages)
        if not any(is_train(message) for message in listed):
            if listed and all(is_evaluate(message) for message in listed):
                return self._evaluate(listed, timeout)
            return self._grid.send_and_receive(listed, timeout=timeout)
        if not all(is_train(message) for message in listed):
            raise UsageError("train messages cannot be mixed with others in one call")
        if not self._checked:
            log(
                WARNING,
                "which strategy this is was not checked: use SecureGrid.start(strategy, ...)",
            )
            self._checked = True
        return [self._secure(listed, timeout)]

    def start(
        self,
        strategy: Strategy,
        initial_arrays: ArrayRecord,
        *,
        evaluate_fn: Callable[[int, ArrayRecord], MetricRecord | None] | None = None,
        **options: Any,
    ) -> Result:
        """Run a strategy on this grid: `strategy.start(grid=grid, ...)`, securely.

        Args:
            strategy: Any strategy that averages replies, such as FedAvg, FedAdam or FedProx.
            initial_arrays: The first model.
            evaluate_fn: The server's own evaluation, whose accuracy and loss also go into the record.
            options: What else `strategy.start` takes: num_rounds, timeout, train_config, evaluate_config.

        Returns:
            What `strategy.start` returns. The record is closed.

        Raises:
            UsageError: The strategy needs every client's own reply, which secure aggregation hides.
        """
        check_strategy(strategy, private=self._budget is not None)
        self._take_weight(weight_of(strategy))
        self._checked = True
        if evaluate_fn is not None:
            evaluate_fn = self.recorded(evaluate_fn)
        try:
            return strategy.start(grid=self, initial_arrays=initial_arrays, evaluate_fn=evaluate_fn, **options)
        finally:
            self.close()

    def _take_weight(self, key: str | None) -> None:
        """Weight by what the strategy weights by, which it also looks for in the reply."""
        named = self._epochs.weighted_by
        if key is None or key == named:
            return
        if self._weight_named:
            raise UsageError(f"weighted_by is {named!r}, the strategy's weighted_by_key {key!r}: leave weighted_by out")
        self._epochs.weighted_by = key
        self._exchange.terms["weighted-by"] = key
        if self._recorder is not None:
            self._recorder.weighted_by = key

    # --- the record ---------------------------------------------------------------------------------------------

    def recorded(self, evaluate: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        """The same `evaluate_fn`, whose accuracy and loss go into the record beside the round that they judge.

        Args:
            evaluate: What the strategy's `start` takes as `evaluate_fn`.

        Returns:
            What to give it instead.
        """

        def evaluate_and_note(number: int, arrays: Any) -> Any:
            found = evaluate(number, arrays)
            if self._recorder is not None and found is not None and number:  # 0 judges the model before any round
                self._recorder.note_evaluation(len(self.rounds), found)
            return found

        return evaluate_and_note

    def close(self) -> None:
        """End the record; the grid stays open, and rounds after this are not recorded."""
        if self._recorder is not None:
            self._recorder.close(len(self.rounds))
            self._recorder = None

    def _keep(self, done: Round) -> None:
        self.rounds.append(done)
        if self._recorder is not None:
            known = None if self._class_count is None else self._epochs.classes
            try:
                self._recorder.note_round(done, known, self._class_count)
                self.record_folder = self._recorder.folder
            except OSError as error:  # a full disk must not cost a round that went well
                log(WARNING, "the record ends here: %s", error)
                self._recorder.stop()
                self._recorder = None

    # --- a run that goes on in another program --------------------------------------------------------------------

    def state_dict(self) -> dict[str, Any]:
        """What a grid of the same options needs to go on from here in another program, in JSON types.

        Returns:
            The value range, which arrays stay positive, the nodes that dealt or released false shares, the plans in use
            with what the server has learned under each, and, under `privacy`, the charges so far. Plans that nodes drew
            together are drawn anew, also with nodes that have not revealed before.

        Under `privacy` save it after every round, and once more after `load_state_dict`: each program that goes on from
        it charges one round for what it does not know of.
        """
        return GridState(
            range=self._ranges.state_dict(),
            faulty=sorted(map(str, self._epochs.faulty)),
            plans=self._epochs.kept_plans,
            ledgers=self._exchange.ledgers,
            budget=None if self._budget is None else self._budget.state_dict(),
        ).to_dict()

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where a grid of the same options stopped; before the first round.

        Under `privacy` one round more is charged, since one may have begun after the state was saved.

        Args:
            state: What `state_dict` returned.

        Raises:
            UsageError: It is no such state, is of a grid with another `privacy`, or rounds were run already; the grid
                is as it was.
        """
        found = GridState.of(state)
        if self.rounds:
            raise UsageError("a state is loaded before the first round")
        if (found.budget is None) != (self._budget is None):
            raise UsageError("this is the state of a grid with another privacy")
        try:
            plans = {(tuple(one.users), tuple(one.arrays)): one.decode() for one in found.plans}
            ranges = None if found.range is None else RangeState.of(found.range)
            if self._budget is not None and found.budget is not None:
                self._budget.load_state_dict(found.budget)  # the last that may be refused, and then nothing was taken
        except HeteroSagError as error:
            raise UsageError(f"this is no state of a SecureGrid: {error}") from None
        self._epochs.resume(plans)
        if ranges is not None:
            self._ranges.resume(ranges)
        self._epochs.faulty = {int(node) for node in found.faulty}
        self._exchange.ledgers = found.ledgers

    # --- rounds ------------------------------------------------------------------------------------------------

    def _secure(self, messages: list[Message], timeout: float | None) -> Message:
        """A round of training: one reply that holds the aggregate, or an error reply that says why there is none."""
        number, began = len(self.rounds) + 1, time.perf_counter()
        by_node = {message.metadata.dst_node_id: message for message in messages}
        work = Work(number=number, messages=by_node, message_type=messages[0].metadata.message_type)
        try:
            content, combined = self._training.run(work, timeout)
        except HeteroSagError as error:
            reason = work.reason(error)
            log(WARNING, "secure round %d failed: %s", number, reason)
            for node, why in work.lost.items():
                log(WARNING, "\t> node %d was lost: %s", node, why)
            self._keep(work.finish(time.perf_counter() - began, error=reason))
            self._failures.note(self.rounds[-1])
            return Message(Error(code=ErrorCode.UNKNOWN, reason=reason), reply_to=messages[0])
        finally:
            if work.plan is not None:  # evaluations have the plan of the last round that began, whatever became of it
                self._evaluations.plan, self._evaluations.train_type = work.plan, work.message_type
        seconds = time.perf_counter() - began
        self._keep(work.finish(seconds, survivors=combined.survivors, combined=combined))
        self._failures.note(self.rounds[-1])
        alive, trips = len(combined.survivors), work.trips
        log(INFO, "secure round %d: %d of %d nodes survived, %d trips", number, alive, len(messages), trips)
        for node, why in work.lost.items():
            log(INFO, "\t> node %d was lost: %s", node, why)
        return Message(content, reply_to=messages[0])

    def _evaluate(self, messages: list[Message], timeout: float | None) -> list[Message]:
        """Evaluate messages: summed securely, or as the nodes say that they answer them."""
        replies, secure = self._evaluations.answer(messages, timeout)
        if self._recorder is not None:
            self._recorder.note_replies(len(self.rounds), replies)
            if secure is not None and not secure.has_error():
                self._recorder.note_evaluation(len(self.rounds), dict(secure.content.metric_records["metrics"]))
        return replies if secure is None else [*replies, secure]


def _run_name(grid: Grid) -> str:
    """What this run's record is called: by Flower's number of it, which `flwr run` and `flwr list` print."""
    number = getattr(getattr(grid, "run", None), "run_id", None)
    return "run" if number is None else f"run-{number}"
