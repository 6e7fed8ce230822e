#!/usr/bin/env python3
"""A run that is killed, goes on under another plan on another number of ranks, and leaves as a Hugging Face folder.

    .venv/bin/python examples/survive.py [--program build/tessera]

Trains a small GPT on this project's texts for 60 steps on four ranks; the same again, killed in the middle and continued on
two ranks; compares the losses of both; exports the trained weights, loads them with `transformers`, and lets both programs
continue a text, token by token. Takes well under a minute on two cores. Exit code 0 if all of it agrees. Without
`transformers` (scripts/setup installs it) the last part is left out, and a line says so.
"""
import argparse
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
MODEL = "gpt:layers=2,hidden=64,heads=4,seq=64,vocab=256"
STEPS, KILLED_AT = 60, 35
FIRST_PLAN, SECOND_PLAN = "megatron(tp=2,dp=2)", "tensor_parallel(2)"
ALLOWED = 1e-4  # relative difference of losses in float32: other plans add the same numbers in another order


class Disagreement(Exception):
    pass


def train(program, run_file, *arguments, kill_at=None):
    """Losses by step, and the step that the run went on from. kill_at: the step after which the process is killed."""
    process = subprocess.Popen([program, "train", run_file, "--json", *arguments], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    losses, resumed_from = {}, 0
    for line in process.stdout:
        report = json.loads(line)
        if "summary" in report:
            resumed_from = report["summary"].get("checkpoints", {}).get("resumed_from", 0)
        elif "loss" in report:
            losses[report["step"]] = report["loss"]
            if report["step"] == kill_at:
                process.send_signal(signal.SIGKILL)
    process.stdout.close()
    code = process.wait()
    if code != (-signal.SIGKILL if kill_at else 0):
        raise Disagreement(f"tessera train ended with exit code {code}")
    return losses, resumed_from


def call(program, *arguments):
    done = subprocess.run([program, *arguments], capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise Disagreement(f"tessera {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def compare(undisturbed, before, after, resumed_from):
    print("\n   step   undisturbed   killed and continued   relative difference")
    worst = 0
    for step in range(1, STEPS + 1):
        other = after.get(step, before.get(step))
        if other is None:
            raise Disagreement(f"step {step} was executed by neither part of the run")
        difference = abs(other - undisturbed[step]) / abs(undisturbed[step])
        worst = max(worst, difference)
        if step % 10 == 0 or step == resumed_from + 1:
            print(f"{step:7}{undisturbed[step]:14.6f}{other:23.6f}{difference:22.1e}")
    print(f"largest relative difference {worst:.1e}, allowed {ALLOWED:.0e}")
    if worst > ALLOWED:
        raise Disagreement("the continued run is not the undisturbed one")


def continue_text(program, weights, exported, prompt):
    tokens = list(prompt.encode())
    answer = json.loads(call(program, "sample", MODEL, "--weights", weights, "--tokens", ",".join(map(str, tokens)),
                             "--temperature", "0", "--count", "24", "--json"))
    ours = answer["tokens"][-24:]
    print(f"\nThe trained model continues {prompt!r}: {bytes(ours).decode(errors='replace')!r}")
    try:
        import torch
        import transformers
    except ImportError as error:
        print(f"Not compared with transformers: {error}")
        return
    transformers.logging.set_verbosity_error()
    model = transformers.GPT2LMHeadModel.from_pretrained(exported).eval()
    theirs = list(tokens)
    with torch.no_grad():
        for _ in ours:
            theirs.append(int(model(torch.tensor([theirs])).logits[0, -1].argmax()))
    if theirs[len(tokens):] != ours:
        raise Disagreement(f"transformers continues with {theirs[len(tokens):]}, tessera with {ours}")
    print(f"transformers {transformers.__version__} continues it with the same {len(ours)} tokens.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", default=str(ROOT / "build" / "tessera"))
    program = os.path.abspath(parser.parse_args().program)
    with tempfile.TemporaryDirectory(prefix="tessera_survive_") as folder:
        run_file = os.path.join(folder, "run.toml")
        pathlib.Path(run_file).write_text(
            f'model = "{MODEL}"\ndata = ["docs/**/*.md"]\nbatch = 8\nsteps = {STEPS}\nplan = "{FIRST_PLAN}"\n'
            f'checkpoint = {{ dir = "{folder}/checkpoints", every = 10, keep = 2 }}\n'
            "optimizer = { lr = 3e-3, warmup = 10 }\n", encoding="utf-8")
        try:
            print(f"{MODEL}, {STEPS} steps under {FIRST_PLAN}, four ranks")
            undisturbed, _ = train(program, run_file, "--set", f"checkpoint.dir={folder}/undisturbed")
            print(f"again, killed after step {KILLED_AT}, and continued under {SECOND_PLAN}, two ranks")
            before, _ = train(program, run_file, kill_at=KILLED_AT)
            after, resumed_from = train(program, run_file, "--resume", "--plan", SECOND_PLAN)
            print(f"continued from the checkpoint of step {resumed_from}")
            compare(undisturbed, before, after, resumed_from)
            print("\n" + call(program, "checkpoint", "verify", f"{folder}/checkpoints").strip())
            call(program, "export", f"{folder}/checkpoints", "--to", "hf", "--model", MODEL, "--out", f"{folder}/hf")
            continue_text(program, f"{folder}/checkpoints", f"{folder}/hf", "The plan ")
        except Disagreement as error:
            print(f"survive: {error}", file=sys.stderr)
            return 1
    print("\nAll of it agrees. Next: docs/guides/survive.md, docs/guides/bring-your-model.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
