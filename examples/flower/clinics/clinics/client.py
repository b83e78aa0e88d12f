"""The ClientApp: ordinary functions, and one mod. PyTorch is imported where it is used: most stages need none of it."""

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from heterosag.flower import mod


def _clinic(context: Context) -> tuple[int, int]:
    return int(context.node_config["partition-id"]), int(context.node_config["num-partitions"])


def _class_of(context: Context) -> int:
    """The smaller half of the clinics has slow links, class 0; deployed nodes say it in their node config instead."""
    clinic, clinics = _clinic(context)
    return int(2 * clinic >= clinics)


app = ClientApp(mods=[mod(trust_server=True, class_of=_class_of)])


@app.train()
def train_model(message: Message, context: Context) -> Message:
    from clinics.task import load_clinic, make_model, train

    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load_clinic(*_clinic(context))
    loss = train(model, x, y)
    metrics = MetricRecord({"num-examples": len(y), "train-loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate_model(message: Message, context: Context) -> Message:
    from clinics.task import accuracy, load_clinic, make_model

    model = make_model()
    model.load_state_dict(message.content["arrays"].to_torch_state_dict())
    x, y = load_clinic(*_clinic(context))
    metrics = MetricRecord({"num-examples": len(y), "accuracy": accuracy(model, x, y)})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)
