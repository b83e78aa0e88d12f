"""A Flower app on clinics' tables: BatchNorm, FedAdam, weights by patients, and two classes of links."""
