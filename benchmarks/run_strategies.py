#!/usr/bin/env python3
"""Strategies beside PyTorch's and beside each other: writes build/results/<date>-strategies.md and .json.

    benchmarks/run_strategies.py                 every group, about 40 minutes on two idle cores
    benchmarks/run_strategies.py --quick         fewer steps and repeats, at most 8 minutes
    benchmarks/run_strategies.py --only "1f1b"   groups whose name contains a word

A group is a list of programs that run in turn, one round after the other; a round gives one ratio for each pair of the
group. What is common with run_peers.py (models, batch, optimizer, one thread a rank, checks of the loss) is taken from
there. With more ranks than cores the ranks of both programs share the cores.
"""
import dataclasses
import datetime
import json
import os
import shlex
import statistics
import sys
import tempfile

from run_peers import BATCH, ROOT, SIZES, Clock, Failed, Session, argument_parser, machine, number

PEER = "PyTorch "  # what the labels of its programs start with
# PyTorch 2.13 has rings of its attention kernels for CUDA only; the failure is told on the page and is no error.
NO_RING_ON_CPU = "_scaled_dot_product_flash_attention_for_cpu"


@dataclasses.dataclass
class Group:
    """Programs on one size and number of ranks. A label is a plan, or PEER and a mode of pytorch_gpt.py."""
    name: str
    ranks: int
    size: str
    pairs: list  # of labels: (Tessera's, what it is compared with)
    may_fail: str = ""  # in the error of a program of the group
    rounds: list = dataclasses.field(default_factory=list)  # {label: {"value": tokens/s, details}}
    errors: dict = dataclasses.field(default_factory=dict)  # by label
    others: float = 0.0  # share of the processors that other programs took meanwhile

    def labels(self):
        """Each once; a pair's programs stand side by side."""
        return list(dict.fromkeys(label for pair in self.pairs for label in pair))

    def values(self, label):
        return [one[label]["value"] for one in self.rounds if label in one]

    def ratios(self, pair):
        ours, other = pair
        return [one[ours]["value"] / one[other]["value"] for one in self.rounds if ours in one and other in one]

    def unexpected(self):
        return {label: error for label, error in self.errors.items() if not self.may_fail or self.may_fail not in error}


def groups():
    def of(name, ranks, *pairs, sizes=tuple(SIZES), **more):
        return [Group(f"{name}, {size}", ranks, size, list(pairs), **more) for size in sizes]

    def sharded(ranks):
        return of(f"sharded data parallel {ranks}", ranks, (f"zero(stage=3,dp={ranks})", PEER + "fsdp2"),
                  (f"fsdp({ranks},prefetch=1)", PEER + "fsdp2_prefetch"))

    one_d = "tensor_parallel(4)"
    return [
        *sharded(2), *sharded(4),
        *of("tensor parallel 4", 4, (one_d, PEER + "tp")),
        *of("sequence sharding 4", 4, ("tensor_parallel(4,sequence_shard=true)", PEER + "tp_sequence")),
        *of("pipeline 1f1b 2", 2, ("one_f_one_b(2,4)", PEER + "1f1b")),
        *of("context parallel 2", 2, ("ring_attention(2)", PEER + "cp"), ("ring_attention(2)", "tensor_parallel(2)"),
            may_fail=NO_RING_ON_CPU),
        *of("many-dimensional 4", 4, *((plan, one_d) for plan in (
            "summa(2)", "cannon(2)", "tensor_parallel_3d(2,2,1)", "tensor_parallel_3d(1,2,2)"))),
        # The small model has 4 heads, which 8 ranks of 1-D cannot share.
        *of("many-dimensional 8", 8, *((plan, "tensor_parallel(8)") for plan in (
            "summa(2,cols=4)", "cannon(2,cols=4)", "tesseract(2,2)", "cannon(2,depth=2)", "tensor_parallel_3d(2,2,2)")),
            sizes=("large",)),
    ]


class StrategySession(Session):
    def steps(self, size):
        """(not timed, timed)"""
        if self.quick:
            return {"large": (1, 2), "small": (2, 10)}[size]
        return {"large": (2, 8), "small": (5, 60)}[size]

    def measure(self, group, label):
        mode = label.removeprefix(PEER)
        value, details = (self.tessera(group.size, label) if mode == label else
                          self.pytorch(group.size, mode, group.ranks))
        return {"value": value, **details}

    def warm_up(self):
        """Files and libraries into the cache of the system: in a quick session for all groups at once."""
        for label, ranks in (("tensor_parallel(2)", 2), (PEER + "tp", 2)):
            self.measure(Group("", ranks, "small", []), label)

    def run(self, group):
        clock = Clock()
        for repeat in range(self.repeats + (not self.quick)):
            one = {}
            for label in group.labels():
                if label in group.errors:
                    continue
                try:
                    one[label] = self.measure(group, label)
                except Failed as failure:
                    group.errors[label] = str(failure).replace(f"{ROOT}/", "").rsplit(" | ", 1)[-1]
            if self.quick or repeat > 0:
                group.rounds.append(one)
        group.others = clock.share_of_others()


def sent(group, label):
    """MiB that all ranks send in a step; PyTorch does not count them."""
    if label.startswith(PEER):
        return "–"
    found = [sum(one[label]["bytes_sent_a_step"].values()) for one in group.rounds if label in one]
    return f"{found[-1] / 2**20:.2f}" if found else "–"


def speed(group, label):
    """Median tokens/s, and half the spread in percent of it."""
    values = group.values(label)
    if not values:
        return "failed"
    middle = statistics.median(values)
    return f"{number(middle)} ± {(max(values) - min(values)) / 2 / middle:.0%}"


def step_time(group, label):
    values = group.values(label)
    return f"{1e3 * BATCH * SIZES[group.size]['seq'] / statistics.median(values):.1f}" if values else "–"


def row(group, pair):
    ours, other = pair
    ratios = group.ratios(pair)
    ratio = f"**{statistics.median(ratios):.2f}** ({min(ratios):.2f}..{max(ratios):.2f})" if ratios else "–"
    cells = [group.name, str(group.ranks), f"`{ours}`", other if other.startswith(PEER) else f"`{other}`",
             speed(group, ours), speed(group, other), step_time(group, ours), step_time(group, other), ratio,
             sent(group, ours), sent(group, other), f"{group.others:.0%}"]
    return f"| {' | '.join(cells)} |"


HEAD = ["| group | ranks | Tessera | beside | tokens/s | beside | step, ms | beside | ratio | MiB sent a step | beside "
        "| others |", "|---|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|"]


def page(session, measured, about, date, command):
    rows = {True: [], False: []}  # by: beside PyTorch
    for group in measured:
        for pair in group.pairs:
            rows[pair[1].startswith(PEER)].append(row(group, pair))
    sizes = "; ".join(f"{name}: " + ", ".join(f"{key} {value}" for key, value in size.items())
                      for name, size in SIZES.items())
    rates = ", ".join(f"{session.steps(size)[1]} after {session.steps(size)[0]} ({size})" for size in SIZES)

    def told(program, size):
        return f"{session.losses[program, size]:.4f}" if (program, size) in session.losses else "–"

    before = ("after a run of each program that does not count, for the whole session" if session.quick else
              "after a round that does not count")
    lines = [f"# Strategies, {date}", "",
             f"`{command}`: rounds: {session.repeats}, {before}; in a round the programs of a group run in turn. A ratio is "
             "that of two runs of one round, above 1 where the first is faster; told are the median and, in brackets, "
             "the spread. ± is half the spread of the rates.", "",
             f"GPT with separate q, k, v, tied head, float32, AdamW, norm clipped; {BATCH} sequences a step over all "
             f"ranks. {sizes}. A rate is the median over the timed steps of a run: {rates}. One thread a rank on both "
             f"sides, {os.cpu_count()} cores: with more ranks than cores, those of either program take turns. Tessera's "
             "ranks are threads of one process, PyTorch's are processes that talk by gloo.", ""]
    if rows[True]:
        lines += ["## Beside PyTorch", *HEAD, *rows[True], ""]
    if rows[False]:
        lines += ["## Beside 1-D tensor parallelism on as many ranks", *HEAD, *rows[False], "",
                  "On 4 ranks 2.5-D is 2-D: `tesseract(2,1)` is `summa(2)`. On 2 cores a step's bytes cost a copy in "
                  "memory and no wire, so ratios tell the overhead of each strategy here, not its merit on many nodes.",
                  ""]
    lines += ["MiB sent a step: by all ranks, counted by Tessera's runtime. `others`: share of all processors that "
              "other programs took meanwhile; above a few percent the row is rough.", ""]
    errors = [(group, label, error) for group in measured for label, error in group.errors.items()]
    if errors:
        lines += ["## Not measured", *[f"- {group.name}, {label}: {error}" for group, label, error in errors], ""]
    lines += ["Losses after the last step, of all plans of Tessera / of all modes of PyTorch (same text and schedule, "
              "other windows and random numbers; a run whose loss differs fails): "
              + "; ".join(f"{size} {told('tessera', size)} / {told('pytorch', size)}" for size in SIZES) + ".", "",
              "## Machine", *[f"- {key}: {value}" for key, value in about.items()], ""]
    return "\n".join(lines)


def record(group):
    return {"name": group.name, "ranks": group.ranks, "size": group.size, "others": group.others,
            "pairs": [{"tessera": ours, "beside": other, "ratios": group.ratios((ours, other))}
                      for ours, other in group.pairs],
            "rounds": group.rounds, "errors": group.errors}


def main():
    args = argument_parser(__doc__).parse_args()
    measured = [group for group in groups() if args.only in group.name]
    if not measured:
        sys.exit(f"run_strategies.py: expected --only to match one of: {'; '.join(g.name for g in groups())}")
    with tempfile.TemporaryDirectory() as folder:
        session = StrategySession(args, folder)
        if session.quick:
            session.warm_up()
        for group in measured:
            print(f"{group.name}: {', '.join(group.labels())} ...", file=sys.stderr, flush=True)
            session.run(group)
            print("\n".join(row(group, pair) for pair in group.pairs), file=sys.stderr, flush=True)
        about = machine(session)
    date = datetime.date.today().isoformat()
    command = shlex.join(["benchmarks/run_strategies.py", *sys.argv[1:]])
    out = ROOT / args.out
    out.mkdir(parents=True, exist_ok=True)
    text = page(session, measured, about, date, command)
    (out / f"{date}-strategies.md").write_text(text)
    (out / f"{date}-strategies.json").write_text(json.dumps({
        "date": date, "command": command, "machine": about, "groups": [record(group) for group in measured]},
        indent=1) + "\n")
    print(text)
    return 1 if any(group.unexpected() for group in measured) else 0


if __name__ == "__main__":
    sys.exit(main())
