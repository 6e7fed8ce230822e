#!/usr/bin/env python3
"""The peer of benchmarks/run_networks.py: networks over images and volumes in PyTorch, trained on random samples.

`resnet50` is ResNet v1.5, `cosmoflow` that of tessera/models/science/cosmoflow.h, `conv2d` and `conv3d` one convolution whose input
is x plus a trained number for each channel, so that the backward pass makes both gradients, and whose output goes through
ReLU into a sum, so that little but the convolution is timed. SGD with momentum; DistributedDataParallel (gloo) over several
ranks, one thread a rank. Prints one line of JSON: seconds of each timed step, the number of parameters, PyTorch's version.

    .venv/bin/python benchmarks/peers/pytorch_networks.py --network resnet50 --size 64 --batch 8 --ranks 2
    .venv/bin/python benchmarks/peers/pytorch_networks.py --network conv3d --layer 16-32-3-1 --size 16 --batch 4
"""
import argparse
import json
import os
import socket
import time

import torch
import torch.distributed as dist
import torch.multiprocessing
from torch import nn


class Bottleneck(nn.Module):
    def __init__(self, channels, width, stride):
        super().__init__()
        out = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(channels, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(inplace=True),
            nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out))
        self.shortcut = nn.Identity() if stride == 1 and channels == out else nn.Sequential(
            nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

    def forward(self, x):
        return torch.relu_(self.body(x) + self.shortcut(x))


def resnet50():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, 1)]
    channels = 64
    for stage, blocks in enumerate((3, 4, 6, 3)):
        for i in range(blocks):
            layers.append(Bottleneck(channels, 64 << stage, 2 if stage > 0 and i == 0 else 1))
            channels = 256 << stage
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, 1000))


def cosmoflow(size):
    layers, channels = [], 4
    for i, multiple in enumerate((1, 2, 4, 8, 16, 16, 16)):
        stride = 2 if i == 3 and size > 2 else 1
        layers += [nn.Conv3d(channels, 16 * multiple, 3, stride, 1, bias=False), nn.LeakyReLU(inplace=True)]
        channels, size = 16 * multiple, size // stride
        if size > 2:
            layers.append(nn.AvgPool3d(3, 2, 1))
            size //= 2
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(channels * size**3, 2048), nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(2048, 256),
                         nn.LeakyReLU(), nn.Dropout(0.2), nn.Linear(256, 4))


class Layer(nn.Module):
    def __init__(self, layer, dims):
        super().__init__()
        inputs, outputs, kernel, stride = layer
        self.shift = nn.Parameter(torch.zeros(inputs, *([1] * dims)))
        self.conv = (nn.Conv2d if dims == 2 else nn.Conv3d)(inputs, outputs, kernel, stride, kernel // 2, bias=False)

    def forward(self, x):
        return self.conv(x + self.shift)


def network_of(args):
    """(network, shape of a sample, loss of its output and targets)"""
    if args.network == "resnet50":
        return resnet50(), (3, args.size, args.size), nn.functional.cross_entropy
    if args.network == "cosmoflow":
        return cosmoflow(args.size), (4,) + (args.size,) * 3, nn.functional.mse_loss
    dims = int(args.network[4])
    layer = tuple(map(int, args.layer.split("-")))
    return Layer(layer, dims), (layer[0],) + (args.size,) * dims, lambda y, _: 0.5 * torch.relu(y).sum()


def work(rank, args, port):
    torch.set_num_threads(1)
    torch.manual_seed(1)
    if args.ranks > 1:
        os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
        dist.init_process_group("gloo", rank=rank, world_size=args.ranks)
    network, shape, loss_of = network_of(args)
    parameters = sum(p.numel() for p in network.parameters())
    model = nn.parallel.DistributedDataParallel(network) if args.ranks > 1 else network
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-6, momentum=0.9)
    samples = args.batch // args.ranks
    x = torch.randn(samples, *shape)
    targets = torch.randn(samples, 4) if args.network == "cosmoflow" else torch.randint(1000, (samples,))
    seconds = []
    for _ in range(args.warmup + args.steps):
        start = time.perf_counter()
        loss = loss_of(model(x), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seconds.append(time.perf_counter() - start)
    if rank == 0:
        print(json.dumps({"step_time_s": seconds[args.warmup:], "parameters": parameters, "torch": torch.__version__}))
    if args.ranks > 1:
        dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=["resnet50", "cosmoflow", "conv2d", "conv3d"], required=True)
    parser.add_argument("--layer", default="", help="input channels, output channels, kernel, stride, joined by -")
    parser.add_argument("--size", type=int, required=True)
    parser.add_argument("--batch", type=int, required=True)
    parser.add_argument("--ranks", type=int, default=1)
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--warmup", type=int, default=2)
    args = parser.parse_args()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    if args.ranks == 1:
        work(0, args, port)
    else:
        torch.multiprocessing.spawn(work, (args, port), args.ranks)


if __name__ == "__main__":
    main()
