#!/usr/bin/env python3
"""Shares one machine between three training jobs, and then a simulated cluster between fifty.

  python3 examples/cluster/share.py [--program PROGRAM]      from the root of the repository; half a minute

Starts a controller with four GPUs (here shares of this machine, since the runtime computes on processors), submits
wide.toml, which may run on one to four of them, and, when it runs, narrow.toml and late.toml. The controller makes room for
them by shrinking the first job while it trains, and lets it grow again. The last loss of that job is compared with a run that
nobody disturbed. Then the same controller's decisions are replayed from its journal, and two policies are compared on jobs
that are drawn.
"""
import argparse
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
parser = argparse.ArgumentParser(description="Shares one machine between three jobs")
parser.add_argument("--program", default=os.path.join(HERE, "../../build/tessera"))
PROGRAM = os.path.abspath(parser.parse_args().program)


def tessera(*words):
    print("$ tessera", " ".join(words), flush=True)
    done = subprocess.run([PROGRAM, *words], check=True, stdout=subprocess.PIPE, text=True)
    return done.stdout


def events(log):
    with open(log, encoding="utf-8") as file:
        return [json.loads(line) for line in file if line.startswith("{") and line.endswith("}\n")]


def follow(log, controller, is_there):
    """Reads a log while it is written, until it has an event of this kind."""
    with subprocess.Popen(["tail", "-F", "-n", "+1", "--pid", str(controller.pid), log], stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL, text=True) as tail:
        for line in tail.stdout:
            if line.startswith("{") and is_there(json.loads(line)):
                tail.terminate()
                return
    sys.exit(f"share.py: the controller has ended before {log} had what was waited for")


def run_live(folder):
    live = os.path.join(folder, "live")
    for job in ("wide", "narrow", "late"):
        with open(os.path.join(HERE, f"{job}.toml"), encoding="utf-8") as file:
            text = file.read().replace('"checkpoints/', f'"{folder}/checkpoints/')
        with open(os.path.join(folder, f"{job}.toml"), "w", encoding="utf-8") as file:
            file.write(text)
    with subprocess.Popen([PROGRAM, "cluster", "serve", "--dir", live, "--cluster", "1x4", "--policy", "optimus", "--round", "0.2",
                           "--until-idle"], stderr=subprocess.PIPE, text=True) as controller:
        print(controller.stderr.readline(), end="")
        submit = ["cluster", "submit", "--dir", live]
        print(tessera(*submit, f"{folder}/wide.toml", "--gpus", "4", "--plan", "data_parallel({})"), end="")
        follow(os.path.join(live, "wide.log"), controller, lambda event: event.get("step", 0) >= 20)
        print(tessera(*submit, f"{folder}/narrow.toml", "--gpus", "2", "--plan", "data_parallel(2)"), end="")
        print(tessera(*submit, f"{folder}/late.toml", "--gpus", "2", "--plan", "data_parallel({})"), end="")
        follow(os.path.join(live, "wide.log"), controller, lambda event: "change" in event)
        print(tessera("cluster", "status", "--dir", live), end="")
        if controller.wait() != 0:
            sys.exit(controller.stderr.read())
    print(tessera("cluster", "replay", "--dir", live), end="")
    own = events(os.path.join(live, "wide.log"))
    changes = [event["change"] for event in own if "change" in event]
    for change in changes:
        print(f"wide: after step {change['after']} on {change['ranks']} ranks; {change['bytes']['counted']:,} bytes of its state moved, "
              f"{change['bytes']['predicted']:,} predicted")
    alone = json.loads(tessera("train", f"{folder}/wide.toml", "--set", f"checkpoint.dir={folder}/alone", "--json").splitlines()[-1])
    moved, undisturbed = own[-1]["summary"]["last_loss"], alone["summary"]["last_loss"]
    print(f"last loss of wide: {moved:.9f}; of the run that nobody disturbed: {undisturbed:.9f}")
    if not changes or abs(moved - undisturbed) > 1e-9 or any(one["bytes"]["counted"] != one["bytes"]["predicted"] for one in changes):
        sys.exit("share.py: expected a job that was resized and equals the undisturbed one, found another")


def simulate():
    for policy in ("tiresias", "default"):
        text = tessera("cluster", "simulate", "ones:jobs=50", "--cluster", "16x4", "--policy", policy)
        print("\n".join(text.splitlines()[:4]))


with tempfile.TemporaryDirectory() as scratch:
    run_live(scratch)
    simulate()
