"""Plans as PyTorch code: losses of three steps, gradient norms and all gradients equal those of the single process.

Usage: pytorch_test.py PROGRAM. Exports small random models (models.py), imports them, writes each plan of PLANS as PyTorch and
runs it by torchrun on CPU ranks (worker.py). What comes of each model under each plan is table.txt; a difference is a failure.
The quick test runs a few cases, TESSERA_ALL_CASES all of them; TESSERA_CASES=llama:tensor,gpt2: chosen ones.
"""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

try:
    import models
    import torch
except ImportError as error:
    print(f"pytorch: skipped: {error}", file=sys.stderr)
    sys.exit(0)

HERE = pathlib.Path(__file__).resolve().parent
TABLE = HERE / "table.txt"
TOLERANCE = {"float32": 1e-5, "float64": 1e-10}
OF_MIXER = 5e-5  # in float32: the gradient of its biases before a norm is a sum that nearly cancels
IN_BFLOAT16 = 0.1  # of plans that compute in it, compared with float32
PLANS = {
    "replicas": "data_parallel(dp=2)",
    "zero2": "zero(stage=2,dp=2)",
    "zero3": "fsdp(dp=4)",
    "hybrid": "fsdp(dp=2,replicas=2)",
    "tensor": "megatron(tp=2)",
    "sequence": "megatron(tp=2,sequence_shard=true)",
    "two_axes": "megatron(tp=2,dp=4,zero=1,micro_batches=2)",
    "pipeline": "megatron(pp=2,dp=2,micro_batches=2)",
}
# More plans, of a few models.
MORE = {
    "recompute": ("megatron(tp=2,dp=2,recompute=full)", ("llama", "own_manual")),
    "kept_pieces": ("fsdp(dp=4,reshard_after_forward=2,micro_batches=2)", ("llama", "own_manual")),
    "accumulate": ("fsdp(dp=2,replicas=2,accumulate=whole,micro_batches=2)", ("own_manual",)),
    "stages_remade": ("megatron(pp=2,dp=2,micro_batches=2,recompute=full)", ("llama", "own_manual", "own_tied")),
    "stages_tensor": ("megatron(pp=2,tp=2,micro_batches=2)", ("llama", "qwen3", "own_manual", "own_tied", "distilbert")),
    "stages_sequence": ("megatron(pp=2,tp=2,dp=2,zero=2,sequence_shard=true,recompute=full,micro_batches=2)", ("llama", "own_tied")),
    "interleaved": ("megatron(pp=2,chunks=2,schedule=interleaved,micro_batches=2)", ("own_deep",)),
    "bfloat16": ("fsdp(dp=2,precision=bfloat16)", ("own_manual",)),
    "mlp": ("""# mlp
mesh = { tp = 2 }
split = [ { ops = "blocks.*.mlp", dim = "ffn", over = "tp" }, { ops = "{embed,head,loss}", dim = "vocab", over = "tp" } ]
""", ("gpt2", "own_fused")),
}
TEXTS = {**PLANS, **{name: text for name, (text, _) in MORE.items()}}
ALL = [f"{model}:{plan}" for model in models.ARCHITECTURES for plan in TEXTS
       if (model != "own_deep" or plan in ("pipeline", "interleaved")) and model in MORE.get(plan, ("", [model]))[1]]
QUICK = ("llama:replicas", "llama:zero3", "llama:sequence", "own_tied:pipeline")


def chosen():
    names = ALL
    if "TESSERA_CASES" in os.environ:
        wanted = os.environ["TESSERA_CASES"].split(",")
        return [name for name in names if name in wanted or name.split(":")[0] in wanted or name.split(":")[1] in wanted]
    return names if "TESSERA_ALL_CASES" in os.environ else list(QUICK)


def tessera(program, *arguments):
    return subprocess.run([program, *map(str, arguments)], capture_output=True, text=True, check=False, timeout=300)


def write_cases(program, folder, names):
    """Returns the cases by their number of ranks, and what became of the others."""
    cases, results = {}, {}
    for model in dict.fromkeys(name.split(":")[0] for name in names):
        archive = folder / f"{model}.pt2"
        torch.export.save(torch.export.export(models.make(model), models.batch(model)), archive)
        for plan in (name.split(":")[1] for name in names if name.split(":")[0] == model):
            file = folder / f"{model}_{plan}.py"
            done = tessera(program, "export", archive, "--plan", TEXTS[plan], "--to", "pytorch", "--out", file, "--json")
            if done.returncode != 0:
                line = done.stderr.strip().replace(str(folder) + "/", "")
                assert done.returncode == 2 and "\n" not in line and not file.exists(), done.stderr
                results[f"{model}:{plan}"] = {"refused": line}
                continue
            about = json.loads(done.stdout)
            for dtype in TOLERANCE:
                case = {"name": f"{model}:{plan}:{dtype}", "model": model, "plan": plan, "dtype": dtype, "file": str(file),
                        "stages": "STAGE_STARTS" in about["text"]}
                cases.setdefault(about["ranks"], []).append(case)
    return cases, results


def run_cases(folder, ranks, cases):
    """Runs the cases; one that ends the ranks has failed, and the others start anew."""
    results, out = {}, folder / f"results_{ranks}"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE), "PYTHONWARNINGS": "ignore"}
    while len(results) < len(cases):
        rest = [case for case in cases if case["name"] not in results]
        (folder / "cases.json").write_text(json.dumps(rest))
        for path in (out, pathlib.Path(f"{out}.error")):
            path.unlink(missing_ok=True)
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", ranks, HERE / "worker.py",
                   folder / "cases.json", out]
        done = subprocess.run([str(part) for part in command], env=environment, capture_output=True, text=True, check=False,
                              timeout=3000)
        lines = out.read_text().splitlines() if out.exists() else []
        results.update({line["name"]: line for line in map(json.loads, lines)})
        if done.returncode == 0:
            continue
        errors = pathlib.Path(f"{out}.error")
        name, error = json.loads(errors.read_text().splitlines()[0]) if errors.exists() else (rest[len(lines)]["name"], done.stderr)
        results[name] = {"error": error}
    return results


def verdict(name, result, dtype):
    if "refused" in result:
        return "refused"
    if "error" in result:
        return "fails"
    allowed = IN_BFLOAT16 if name.endswith(":bfloat16") else TOLERANCE[dtype]
    if name.startswith("own_mixer:") and dtype == "float32":
        allowed = OF_MIXER
    worst = max(result[key] for key in ("loss", "gradient", "norm"))
    return "equal" if worst <= allowed and result["missing"] == 0 else "differs"


def sent_by_plan(program, folder, model, plan):
    done = tessera(program, "simulate", folder / f"{model}.pt2", "--plan", TEXTS[plan], "--cluster", "dgx-a100:1", "--precision",
                   "float32", "--batch", models.BATCH, "--json")
    out = {}
    if done.returncode != 0:
        return done.stderr.strip()
    for role in json.loads(done.stdout)["roles"]:
        for part in role["traffic"]:
            kind = part["kind"] if part["kind"] in ("all_reduce", "all_gather", "reduce_scatter") else "send"
            out[kind] = out.get(kind, 0) + part["bytes"] * role["ranks"]
    return out


def main():
    program, names = sys.argv[1], chosen()
    with tempfile.TemporaryDirectory(prefix="tessera_pytorch_test_") as temporary:
        folder = pathlib.Path(temporary)
        by_ranks, refused = write_cases(program, folder, names)
        results = {}
        for ranks, cases in sorted(by_ranks.items()):
            results.update(run_cases(folder, ranks, cases))
        found = {}
        for name in names:
            parts = [results.get(f"{name}:{dtype}", refused.get(name)) for dtype in TOLERANCE]
            found[name] = sorted({verdict(name, part, dtype) for part, dtype in zip(parts, TOLERANCE, strict=True)})
            for part, dtype in zip(parts, TOLERANCE, strict=True):
                print(name, dtype, verdict(name, part, dtype), json.dumps({k: v for k, v in part.items() if k != "sent"}))
            if "TESSERA_BYTES" in os.environ and "sent" in parts[0]:
                total = {}
                for rank in parts[0]["sent"]:
                    for kind, count in rank.items():
                        total[kind] = total.get(kind, 0) + count
                print(name, "bytes of PyTorch", total, "of the plan", sent_by_plan(program, folder, *name.split(":")))
    expected = dict(line.split() for line in TABLE.read_text().splitlines() if line and not line.startswith("#"))
    lines = {name: "+".join(kinds) for name, kinds in found.items()}
    if "TESSERA_REWRITE_GOLDEN" in os.environ:
        expected.update(lines)
        head = [line for line in TABLE.read_text().splitlines() if line.startswith("#")]
        TABLE.write_text("\n".join(head + [f"{name} {expected[name]}" for name in ALL if name in expected]) + "\n")
        return 0
    wrong = [f"{name}: expected {expected.get(name)}, found {line}" for name, line in lines.items() if expected.get(name) != line]
    print("\n".join(wrong) or f"{len(lines)} cases as expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
