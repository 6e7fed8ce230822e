#!/usr/bin/env python3
"""A vision transformer that learns to read handwritten digits, scikit-learn's, and how many of them it then reads right.

    .venv/bin/python examples/digits.py [--program build/tessera] [--steps 600] [--plan PLAN]

Writes the digits as NumPy arrays (tools/digits.py), trains on four fifths of them as examples/digits.toml says, with
evaluations on the others, exports the weights as a Hugging Face folder and lets `transformers` read the 360 digits that were
held back. Exit code 0 if the loss of the evaluations falls to less than half of the first, and if enough digits are read right:
94 % after the 600 steps of the run file (found with seeds 1, 2 and 3: 96.4 %, 95.6 %, 95.8 %), 50 % after 90 or more.
"""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
RUN_FILE = ROOT / "examples" / "digits.toml"


class Disagreement(Exception):
    pass


def call(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise Disagreement(f"{' '.join(map(str, command))}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def train(program, run, folder, steps, plan):
    """The losses of the evaluations, by step."""
    def arrays(name):
        return f'{{ arrays = {{ images = "{folder}/{name}_images.npy", targets = "{folder}/{name}_labels.npy" }}, ' \
               f'scale = {run["data"]["scale"]} }}'
    settings = [f"data={arrays('train')}", f"eval.data={arrays('eval')}", f"eval.every={max(1, steps // 6)}",
                f"checkpoint.dir={folder}/checkpoints", f"folder={folder}/record"]
    command = [program, "train", str(RUN_FILE), "--steps", str(steps), "--plan", plan, "--json"]
    for setting in settings:
        command += ["--set", setting]
    losses = {}
    for line in call(*command).splitlines():
        report = json.loads(line)
        if "eval_loss" in report and "step" in report:
            losses[report["step"]] = report["eval_loss"]
            print(f"step {report['step']:4}   loss {report['loss']:.4f}   of the digits held back {report['eval_loss']:.4f}")
    return losses


def read_right(exported, folder):
    """The share of the held-back digits that transformers reads right with the exported weights."""
    import numpy
    import torch
    import transformers
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    model = transformers.ViTForImageClassification.from_pretrained(exported).eval()
    images = torch.tensor(numpy.load(f"{folder}/eval_images.npy")).float() / 16
    labels = torch.tensor(numpy.load(f"{folder}/eval_labels.npy"))
    with torch.no_grad():
        found = model(images.unsqueeze(1)).logits.argmax(-1)
    return (found == labels).double().mean().item()


def main():
    run = tomllib.loads(RUN_FILE.read_text(encoding="utf-8"))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tessera"))
    parser.add_argument("--steps", type=int, default=run["steps"])
    parser.add_argument("--plan", default="serial")
    options = parser.parse_args()
    program = os.path.abspath(options.program)
    with tempfile.TemporaryDirectory(prefix="tessera_digits_") as folder:
        try:
            print(call(sys.executable, str(ROOT / "tools" / "digits.py"), "--out", folder).strip())
            print(f"{run['model']}, {options.steps} steps, plan {options.plan}")
            losses = train(program, run, folder, options.steps, options.plan)
            first, last = losses[min(losses)], losses[max(losses)]
            call(program, "export", f"{folder}/checkpoints", "--to", "hf", "--model", run["model"], "--out", f"{folder}/hf")
            share = read_right(f"{folder}/hf", folder)
            expected = 0.94 if options.steps >= run["steps"] else 0.5 if options.steps >= 90 else 0.0
            print(f"read right by transformers with the exported weights: {share:.1%}, expected at least {expected:.0%}")
            if last > first / 2:
                raise Disagreement(f"expected an evaluation loss below half of {first:.4f}, found {last:.4f}")
            if share < expected:
                raise Disagreement(f"expected {expected:.0%} of the digits to be read right, found {share:.1%}")
        except Disagreement as error:
            print(f"digits: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
