"""The ServerApp: Flower's FedAdam on a grid that aggregates securely."""

import json
from pathlib import Path

from flwr.app import ArrayRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAdam

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    from clinics.task import accuracy, load_clinic, make_model
    from heterosag.flower import SecureGrid

    config = context.run_config
    x, y = load_clinic(1, 1)  # the patients whom nobody trains on

    def evaluate(number: int, arrays: ArrayRecord) -> MetricRecord:
        del number
        model = make_model()
        model.load_state_dict(arrays.to_torch_state_dict())
        return MetricRecord({"accuracy": accuracy(model, x, y)})

    secure = SecureGrid(
        grid,
        levels=[int(level) for level in str(config["levels"]).split(",")],  # slow links first
        max_weight=20,
        weight_unit=4,  # a clinic of 80 patients or more counts as 80, and others by fours
        run_config=config,
        record=str(config["record"]) or None,
    )
    strategy = FedAdam(eta=0.05, min_available_nodes=8)
    arrays = ArrayRecord(make_model().state_dict())
    result = secure.start(strategy, arrays, num_rounds=int(config["rounds"]), evaluate_fn=evaluate)
    found = {
        "accuracy": [float(metrics["accuracy"]) for metrics in result.evaluate_metrics_serverapp.values()],
        "accuracy_of_clinics": [float(metrics["accuracy"]) for metrics in result.evaluate_metrics_clientapp.values()],
        "survivors": [len(done.survivors) for done in secure.rounds],
        "trips": [done.trips for done in secure.rounds],
    }
    print(json.dumps(found, indent=2))
    if config["result"]:
        Path(str(config["result"])).write_text(json.dumps(found), encoding="utf-8")
