#!/usr/bin/env python3
"""Trains cost networks of the published shape (docs/strategies/planning-tables.md section 8) on the closed form of `tessera shard`.

The published networks were trained on measurements of one machine and are not part of this repository; these serve to run
searches on networks at all, and show that the shape can learn such costs. Prints the mean squared error and Kendall's tau on
samples that were not trained on, and writes the JSON that `tessera shard --cost FILE.json` reads.

Usage: train_table_networks.py OUT.json [--samples N] [--epochs N] [--seed S]     (needs PyTorch)
Example: .venv/bin/python benchmarks/train_table_networks.py networks.json
"""
import argparse
import json
import sys

import torch
from torch import nn

# The closed form and its constants: tessera/tables/closed_form.h.
BATCH, LOOKUP_MS, MEMORY, LAUNCH_MS, WARM_MS, LINK = 65536, 4.9e-7, 1e9, 2.66, 0.66, 4.57e6
BACKWARD_MS, FORWARD_MS, SKEW = 0.7, 0.3, 0.24
POOL_REUSE = [.225, .104, .126, .106, .082, .056, .039, .033, .031, .027, .027, .022, .019, .015, .006, .008, .033]
FEATURES = [f"bin_{i}" for i in (0, 1, 10, 11, 12, 13, 14, 15, 16, 2, 3, 4, 5, 6, 7, 8, 9)] + ["dim", "pooling_factor", "row"]


def log_normal(count, mean, deviation):
    variance = torch.log1p(torch.tensor((deviation / mean) ** 2))
    return torch.exp(torch.log(torch.tensor(mean)) - variance / 2 + variance.sqrt() * torch.randn(count))


def pool(count=856):
    """Tables with every dim from 4 to 128, and from tables cut in up to 64 blocks of rows: features, memory, work."""
    rows = log_normal(count, 4.107e6, 3.135e6).clamp(min=100)
    pooling = log_normal(count, 15.81, 25.59)
    reuse = torch.tensor(POOL_REUSE) * -torch.log(torch.rand(count, 17))
    reuse = reuse / reuse.sum(1, keepdim=True)
    tables = []
    for dim in range(4, 132, 4):
        for share in (1.0, 0.5, 0.25, 0.75, 0.1):
            features = torch.cat([reuse[:, [int(name[4:]) for name in FEATURES[:17]]], torch.full((count, 1), float(dim)),
                                  (pooling * share)[:, None], (rows * share)[:, None]], 1)
            lookups = BATCH * pooling * share
            work = lookups * (LOOKUP_MS + dim * 4 / MEMORY) + BATCH * dim * 4 / MEMORY
            tables.append((features, rows * share * dim * 4, work))
    return [torch.cat(column) for column in zip(*tables)]


def compute_ms(work):
    return work + LAUNCH_MS * (1 - torch.exp(-work / WARM_MS))


def exchange_ms(columns):
    devices = columns.shape[1]
    mean, most = columns.mean(1, keepdim=True), columns.max(1, keepdim=True).values
    return (mean + SKEW * (most - mean)) * BATCH * 4 * (devices - 1) / devices / LINK * torch.ones_like(columns)


class Computation(nn.Module):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(20, 128), nn.ReLU(), nn.Linear(128, 32), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))

    def forward(self, tables, mask):
        return self.head((self.encoder(tables) * mask[..., None]).sum(1))[:, 0]


def exchange_network(inputs, devices):
    return nn.Sequential(nn.Linear(inputs, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 32), nn.ReLU(),
                         nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, devices))


def kendall_tau(found, wanted):
    found, wanted = found[:1000].flatten(), wanted[:1000].flatten()
    signs = torch.sign(found[:, None] - found) * torch.sign(wanted[:, None] - wanted)
    return (signs.sum() / (torch.sign(wanted[:, None] - wanted) != 0).sum()).item()


def train(model, inputs, wanted, epochs, name):
    """80 % of the samples train, 10 % choose the epoch, 10 % are reported."""
    count = len(wanted)
    parts = [slice(0, count * 8 // 10), slice(count * 8 // 10, count * 9 // 10), slice(count * 9 // 10, count)]
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs)
    best, kept = float("inf"), None
    for _ in range(epochs):
        order = torch.randperm(parts[0].stop)
        for at in order.split(512):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(*(x[at] for x in inputs)), wanted[at]).backward()
            optimizer.step()
        schedule.step()
        with torch.no_grad():
            loss = nn.functional.mse_loss(model(*(x[parts[1]] for x in inputs)), wanted[parts[1]]).item()
        if loss < best:
            best, kept = loss, {key: value.clone() for key, value in model.state_dict().items()}
    model.load_state_dict(kept)
    with torch.no_grad():
        found = model(*(x[parts[2]] for x in inputs))
    error = nn.functional.mse_loss(found, wanted[parts[2]]).item()
    print(f"{name}: mean squared error {error:.4g} ms^2, Kendall's tau {kendall_tau(found, wanted[parts[2]]):.4f}", flush=True)


def layers(model, scale=None):
    out = []
    for layer in model:
        if isinstance(layer, nn.Linear):
            weight = layer.weight.detach()
            if scale is not None and not out:
                weight = weight / scale
            out.append({"weight": [[float(f"{x:.8g}") for x in row] for row in weight.tolist()],
                        "bias": [float(f"{x:.8g}") for x in layer.bias.tolist()]})
    return out


def computation(samples, epochs):
    features, memory, work = pool()
    mean, deviation = features.mean(0), features.std(0)
    standard = (features - mean) / (deviation + 1e-6)
    chosen = torch.randint(len(features), (2 * samples, 15))
    mask = (torch.arange(15) < torch.randint(1, 16, (2 * samples, 1))).float()
    fits = (memory[chosen] * mask).sum(1) <= 4 * 2**30
    chosen, mask = chosen[fits][:samples], mask[fits][:samples]
    wanted = compute_ms((work[chosen] * mask).sum(1))
    model = Computation()
    # Rows of the pool are gathered batch by batch: all samples at once would not fit in memory.
    class Gathered(nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, at, mask):
            return self.model(standard[at], mask)

    train(Gathered(), (chosen, mask), wanted, epochs, "computation")
    network = {"features": FEATURES, "mean": mean.tolist(), "std": deviation.tolist(), "encoder": layers(model.encoder),
               "head": layers(model.head)}
    trained = {name: [features[:, i].min().item(), features[:, i].max().item()] for i, name in enumerate(FEATURES)
               if name in ("dim", "pooling_factor", "row")}
    return network, trained


def communication(devices, samples, epochs):
    dims = torch.tensor([4., 8., 16., 32., 64., 128.])
    columns = torch.zeros(samples, devices)
    random_share = torch.rand(samples)
    counts = torch.randint(10, 60, (samples,))
    largest = torch.randint(1, 7, (samples,))
    for step in range(59):
        dim = dims[(torch.rand(samples) * largest).long()] * (step < counts)
        least = columns.argmin(1)
        drawn = torch.randint(devices, (samples,))
        at = torch.where(torch.rand(samples) < random_share, drawn, least)
        columns[torch.arange(samples), at] += dim
    backward = BACKWARD_MS + exchange_ms(columns)
    model = exchange_network(devices, devices)
    scale = torch.full((devices,), 200.0)
    train(model, (columns / scale,), backward, epochs, f"backward exchange of {devices} devices")
    out = {"devices": devices, "backward": layers(model, scale)}
    skew = torch.rand(samples, devices) * torch.randint(1, 20, (samples, 1))
    skew = skew - skew.min(1, keepdim=True).values
    forward = FORWARD_MS + exchange_ms(columns) + skew.max(1, keepdim=True).values - skew
    model = exchange_network(2 * devices, devices)
    scale = torch.cat([scale, torch.full((devices,), 10.0)])
    train(model, (torch.cat([columns, skew], 1) / scale,), forward, epochs, f"forward exchange of {devices} devices")
    return out | {"forward": layers(model, scale)}, (columns.min().item(), columns.max().item())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--samples", type=int, default=40000)
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.manual_seed(options.seed)
    torch.set_num_threads(1)
    compute, trained = computation(options.samples, options.epochs)
    exchanges, columns = zip(*(communication(devices, options.samples, options.epochs) for devices in (4, 8)))
    # Columns of a device that the networks of every number of devices have seen.
    trained["device_columns"] = [max(least for least, _ in columns), min(most for _, most in columns)]
    model = {"model": "neural", "name": "networks", "batch": BATCH, "range": trained, "compute": compute,
             "communication": list(exchanges)}
    with open(options.out, "w", encoding="utf-8") as file:
        json.dump(model, file)
    return 0


if __name__ == "__main__":
    sys.exit(main())
