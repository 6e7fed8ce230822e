"""The programs of Slurm that the controller asks, for machines without Slurm: install() puts them into a folder for PATH.

Jobs are processes of this machine. Every call is a line of calls.jsonl: a program and its arguments. A file named `silent` in
the folder makes all of them fail as they do without slurmctld, `refuses` makes sbatch fail, and `down` has names of nodes.
"""
import json
import os
import pathlib
import signal
import subprocess
import sys

PROGRAMS = ("sinfo", "squeue", "sbatch", "scontrol", "scancel")
NODES = ("n0|idle|gpu:a100:4", "n0|idle|gpu:a100:4", "n1|mixed*|gpu:a100:4(S:0-1),mps:200", "n2|down*|gpu:4", "login|idle|(null)")


def install(folder):
    os.makedirs(os.path.join(folder, "jobs"))
    for name in PROGRAMS:
        path = os.path.join(folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(f"#!/bin/sh\nexec '{sys.executable}' '{os.path.abspath(__file__)}' '{folder}' {name} \"$@\"\n")
        os.chmod(path, 0o700)


def calls(folder, name):
    with open(os.path.join(folder, "calls.jsonl"), encoding="utf-8") as file:
        return [call[1:] for call in map(json.loads, file) if call[0] == name]


class Job:
    def __init__(self, folder, number):
        self.number, self.path = number, folder / "jobs" / str(number)

    def read(self, name):
        path = self.path / name
        return path.read_text(encoding="utf-8") if path.exists() else ""

    def write(self, name, text):
        temporary = self.path / (name + ".new")
        temporary.write_text(text, encoding="utf-8")
        temporary.rename(self.path / name)

    def submit(self, arguments):
        self.path.mkdir()
        script = next(i for i, word in enumerate(arguments) if not word.startswith("-"))
        self.write("words", json.dumps(arguments[script:]))
        self.write("comment", next(word[len("--comment="):] for word in arguments if word.startswith("--comment=")))

    def release(self):
        words = ["sh", "-c", 'code=$1; shift; "$@"; echo $? >"$code.new"; mv "$code.new" "$code"', "sh", str(self.path / "code"), "sh",
                 *json.loads(self.read("words"))]
        environment = {**os.environ, "SLURM_JOB_ID": str(self.number), "SLURMD_NODENAME": self.read("node")}
        process = subprocess.Popen(words, start_new_session=True, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                                   stderr=subprocess.DEVNULL)
        self.write("pid", str(process.pid))

    def cancel(self):
        if not self.read("code"):
            self.write("code", "CANCELLED")
        if self.read("pid"):
            try:
                os.killpg(int(self.read("pid")), signal.SIGKILL)
            except ProcessLookupError:
                pass

    def line(self):
        code = self.read("code").strip()
        if code:
            state = "COMPLETED" if code == "0" else "CANCELLED" if code == "CANCELLED" else "FAILED"
        else:
            state = "RUNNING" if self.read("pid") else "PENDING"
        return f"{self.number}|{state}|{'None' if self.read('pid') else 'JobHeldUser'}|{self.read('comment')}"


def main():
    folder, name, arguments = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with open(folder / "calls.jsonl", "a", encoding="utf-8") as file:
        file.write(json.dumps([name, *arguments]) + "\n")
    if (folder / "silent").exists():
        sys.exit("slurm_load: error: Unable to contact slurm controller (connect failure)")
    numbers = sorted(int(path.name) for path in (folder / "jobs").iterdir())
    if name == "sinfo":
        down = (folder / "down").read_text(encoding="utf-8").split() if (folder / "down").exists() else []
        print("\n".join("|".join([name, "drained*" if name in down else state, resources])
                        for name, state, resources in (node.split("|") for node in NODES)))
    elif name == "squeue":
        print("\n".join(["77|RUNNING|None|(null)"] + [Job(folder, number).line() for number in numbers]))
    elif name == "sbatch":
        if (folder / "refuses").exists():
            sys.exit("sbatch: error: Batch job submission failed: Requested node configuration is not available")
        Job(folder, len(numbers) + 1).submit(arguments)
        print(f"{len(numbers) + 1};cluster")
    elif name == "scancel":
        for number in arguments[1:]:
            Job(folder, int(number)).cancel()
    elif arguments[0] == "update":
        Job(folder, int(arguments[1].split("=")[1])).write("node", arguments[2].split("=")[1])
    elif arguments[0] == "release":
        for number in arguments[1].split(","):
            Job(folder, int(number)).release()
    else:
        print(f"JobId={arguments[-1]} JobState=FAILED ExitCode={Job(folder, int(arguments[-1])).read('code').strip()}:0 RunTime=00:00:01")


if __name__ == "__main__":
    main()
