"""The ServerApp: Flower's FedAvg, and one wrapper around its grid."""

import json
import time
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from digits.task import accuracy, load_part, make_model
from heterosag.flower import SecureGrid
from heterosag.storage.identities import load_directory

app = ServerApp()


def total(sizes: dict[str, dict[int, int]]) -> int:
    return sum(sum(by.values()) for by in sizes.values())


@app.main()
def main(grid: Grid, context: Context) -> None:
    config = context.run_config
    nodes, size, directory = int(config["nodes"]), int(config["subgroup-size"]), str(config["directory"])
    secure = SecureGrid(  # the other line
        grid,
        levels=[int(level) for level in str(config["levels"]).split(",")],  # one for each class of links
        rule=str(config["rule"]),
        value_range=0.5,
        timeouts=float(config["stage-timeout"]),
        options={"subgroup_size": size, "min_survivors": 2, "min_robustness": 0.0} if size else None,
        directory=load_directory(Path(directory)) if directory else None,  # turns identities on
        record=str(config["record"]) or None,
        prepare=bool(config["prepare"]),  # whether the next round is set up on this round's trips
    )
    x, y = load_part(nodes, nodes)

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        model = make_model()
        model.load_state_dict(arrays.to_torch_state_dict())
        del number
        return MetricRecord({"accuracy": accuracy(model, x, y)})

    while len(list(grid.get_node_ids())) < nodes:
        time.sleep(1)
    strategy = FedAvg(min_train_nodes=2, min_available_nodes=2, fraction_evaluate=0.0)  # later rounds take who is left
    result = secure.start(
        strategy,
        initial_arrays=ArrayRecord(make_model().state_dict()),
        num_rounds=int(config["rounds"]),
        evaluate_fn=evaluate,
    )
    found = {
        "accuracy": [float(metrics["accuracy"]) for metrics in result.evaluate_metrics_serverapp.values()],
        "rounds": [
            {
                "nodes": len(done.nodes),
                "survivors": len(done.survivors),
                "lost": {str(node): why for node, why in done.lost.items()},
                "error": done.error,
                "trips": done.trips,
                "protocol_bytes_up": total(done.received_bytes),
                "wire_bytes_up": total(done.wire_received) or None,  # counted for a run with a record
                "wire_bytes_down": total(done.wire_sent) or None,
                "seconds": done.seconds,
                "trip_seconds": done.trip_seconds,
                "node_seconds": {stage: max(by.values()) for stage, by in done.node_seconds.items()},
            }
            for done in secure.rounds
        ],
    }
    print(json.dumps(found, indent=2))
    if config["result"]:
        Path(str(config["result"])).write_text(json.dumps(found), encoding="utf-8")
