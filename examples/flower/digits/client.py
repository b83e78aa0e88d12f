"""The ClientApp: an ordinary train function, and one mod."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from heterosag import Policy
from heterosag.flower import mod


def _part(context: Context) -> tuple[int, int]:
    return int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])


def _class_of(context: Context) -> int:
    """Two classes of links: the first half of the nodes is slow."""
    part, parts = _part(context)
    return int(2 * part >= parts)


# Subgroups of two, so that few nodes are enough for the median: less than a node accepts unless it says so by name.
SMALL = Policy(min_survivors=2, min_robustness=0.0, min_colluders=0)

app = ClientApp(mods=[mod(trust_server=True, class_of=_class_of, policy=SMALL)])  # give identities instead of trust


@app.train()
def train_model(message: Message, context: Context) -> Message:
    from digits.task import load_part, make_model, train  # PyTorch, which the other stages of a round do not need

    model = make_model()
    before = message.content["arrays"].to_torch_state_dict()
    model.load_state_dict(before)
    x, y = load_part(*_part(context))
    loss = train(model, x, y)
    state = model.state_dict()
    if context.node_config.get("malicious", False):  # a node that sends thirty times its update, the wrong way
        state = {name: before[name] - 30 * (value - before[name]) for name, value in state.items()}
    metrics = MetricRecord({"num-examples": len(y), "loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(state), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_model(message: Message, context: Context) -> Message:
    from digits.task import accuracy, load_part, make_model

    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load_part(*_part(context))
    metrics = MetricRecord({"num-examples": len(y), "accuracy": accuracy(model, x, y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
