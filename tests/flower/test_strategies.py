"""Strategies behind a grid: refused, warned of, or taken with the weight that they name."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flower_nodes import LOOSE, arrays, grid_of, make_nodes, messages, record, train
from flwr.app import ArrayRecord, Message, MessageType, MetricRecord, RecordDict
from flwr.serverapp.strategy import DifferentialPrivacyClientSideFixedClipping, FedAdam, FedAvg, FedProx, Krum

from heterosag.errors import UsageError
from heterosag.flower import mod
from heterosag.flower.messages import arrays_of
from heterosag.flower.strategies import check_strategy, weight_of


class Filtering(FedAvg):
    """Drops replies of some nodes, as it would with plain Flower."""

    def aggregate_train(self, server_round: int, replies: Any) -> Any:
        return super().aggregate_train(server_round, [one for one in replies if one.metadata.src_node_id != 3])


def test_flowers_own_strategies_are_taken_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    wrapped = DifferentialPrivacyClientSideFixedClipping(FedAvg(), 0.1, 1.0, 10)
    for strategy in (FedAvg(), FedAdam(), FedProx(proximal_mu=0.1), wrapped):
        check_strategy(strategy, private=False)
    assert caplog.text == ""
    with pytest.raises(UsageError, match="private already"):
        check_strategy(wrapped, private=True)
    with pytest.raises(UsageError, match="Krum needs every client's own reply"):
        check_strategy(Krum(num_malicious_nodes=1), private=False)


def test_code_of_its_own_for_replies_is_warned_of(caplog: pytest.LogCaptureFixture) -> None:
    check_strategy(Filtering(), private=False)
    assert "Filtering has code of its own in aggregate_train" in caplog.text
    caplog.clear()
    inside = FedAvg(train_metrics_aggr_fn=lambda contents, key: MetricRecord())
    check_strategy(DifferentialPrivacyClientSideFixedClipping(inside, 0.1, 1.0, 10), private=False)
    assert "FedAvg has code of its own in train_metrics_aggr_fn" in caplog.text
    assert len(caplog.records) == 1


def test_the_weight_is_the_strategys(tmp_path: Path) -> None:
    own = mod(policy=LOOSE, trust_server=True, release_log=tmp_path, weighted_by=["rows"])
    nodes = make_nodes(6, tmp_path, train, secure=lambda _: own, rows=3.0)
    strategy = FedAvg(weighted_by_key="rows", fraction_evaluate=0.0)
    assert weight_of(strategy) == "rows"
    assert weight_of(object()) is None
    grid, _ = grid_of(nodes, max_weight=4, record=tmp_path)
    result = grid.start(strategy, record(arrays()), num_rounds=1)
    assert grid.rounds[0].error == ""
    assert result.train_metrics_clientapp[1] == {"num-examples": pytest.approx(10, abs=1e-3)}
    assert grid.rounds[0].combined is not None
    assert {block.weight for segment in grid.rounds[0].combined.blocks for block in segment} <= {9, 18}
    named, _ = grid_of(nodes, weighted_by="num-examples")
    with pytest.raises(UsageError, match="leave weighted_by out"):
        named.start(strategy, record(arrays()), num_rounds=1)


def test_metrics_of_training_reach_the_strategy(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train, train_loss=0.5, train_accuracy=0.25)
    grid, _ = grid_of(nodes)
    result = grid.start(FedAvg(fraction_evaluate=0.0), record({"w": np.zeros(30, dtype=np.float32)}), num_rounds=2)
    for number in (1, 2):
        assert dict(result.train_metrics_clientapp[number]) == {
            "train_accuracy": pytest.approx(0.25, abs=1e-4),
            "train_loss": pytest.approx(0.5, abs=1e-4),
        }


def test_a_strategy_with_two_array_records_is_told_what_to_do(tmp_path: Path) -> None:
    nodes = make_nodes(6, tmp_path, train)
    grid, inside = grid_of(nodes)
    sent = messages(nodes, arrays())
    sent[0].content["head"] = record(arrays())  # the content of all
    (reply,) = grid.send_and_receive(sent)
    assert "('arrays', 'head'): put their arrays into one" in reply.error.reason
    assert inside.log == []


def test_two_array_records_are_refused_with_what_to_do() -> None:
    content = RecordDict({"body": record(arrays()), "head": record(arrays())})
    message = Message(content, dst_node_id=1, message_type=MessageType.TRAIN)
    with pytest.raises(UsageError, match=r"not 2 \('body', 'head'\): put their arrays into one"):
        arrays_of(message.content, "a train message")
    with pytest.raises(UsageError, match=r"exactly one ArrayRecord, not 0$"):
        arrays_of(RecordDict(), "a train message")
    both = {f"{part}.{name}": value for part in content for name, value in arrays().items()}
    assert len(arrays_of(RecordDict({"arrays": ArrayRecord(dict(record(both)))}), "a train message")[1]) == 8
