"""How a typed program uses the package; mypy --strict checks it (scripts/wheel)."""
from pathlib import Path

import tessera


def best_of(model: tessera.Model, cluster: tessera.Cluster, batch: int) -> tuple[tessera.Plan, float]:
    said: list[str] = []
    plan = tessera.plan(model, cluster, batch=batch, fixed={"tp": 2}, progress=said.append)
    assert plan.found is not None
    seconds: float = plan.found.step_time_s
    ranks: int | None = plan.ranks
    assert ranks is None or ranks > 0
    return plan, seconds


def figures(model: str, plan: tessera.Plan, folder: Path) -> dict[str, float]:
    step = tessera.simulate(model, plan, "dgx-a100:1", batch=8, stragglers={1: 1.5}, trace=folder / "step.json")
    tessera.report(model, [plan, "ddp(8)"], "dgx-a100:1", batch=8).save(folder / "page.html")
    slowest = max(float(row["spent_s"]["compute"]) for row in step.roles)
    text: str = tessera.export(model, plan, "torchtitan").text
    return {"step": step.step_time_s, "compute": slowest, "characters": float(len(text))}


def placed(rows: list[dict[str, object]]) -> tessera.Table:
    try:
        return tessera.shard(rows, devices=8, memory="32 GiB").placement
    except tessera.DoesNotFit:
        return tessera.Table([])
