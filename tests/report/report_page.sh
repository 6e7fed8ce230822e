#!/usr/bin/env bash
# Makes pages with the program and opens them in a headless browser (check_page.mjs): of two plans and of a search, of the search alone,
# of a recommender, of plans of 64 devices that do not fit, and of a run.
# Exit code 77: skipped, the reason is printed.
set -euo pipefail
tessera="$1" node="$2" chromium="$3" modules="$4" folder="$5"
here="$(dirname "${BASH_SOURCE[0]}")"

skip() { echo "report_page: skipped: $1" >&2; exit 77; }
[[ -x "$node" ]] || skip "node was not found when the build was configured"
[[ -x "$chromium" ]] || skip "chromium was not found when the build was configured"
[[ -d "$modules/puppeteer-core" ]] || skip "npm was not found when the build was configured"

model=gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024
# The limit is near what the programs need: its line lies in the chart.
"$tessera" plan "$model" --cluster dgx-a100 --batch 16 --memory-limit '2.1 GB' --evaluations 20 --json > "$folder/answer.json"
"$tessera" report --curve "$folder/answer.json" -o "$folder/curve.html"
"$node" "$here/check_page.mjs" "$folder/curve.html" "$modules" "$chromium"
# Nothing fits: all programs lie beyond the limit, and there is no answer.
"$tessera" plan "$model" --cluster dgx-a100 --batch 16 --memory-limit '1.5 GB' --evaluations 12 --json > "$folder/none.json" || [[ $? == 1 ]]
"$tessera" report --curve "$folder/none.json" -o "$folder/none.html"
"$node" "$here/check_page.mjs" "$folder/none.html" "$modules" "$chromium"
"$tessera" report "$model" --cluster dgx-a100 --batch 16 --curve "$folder/answer.json" \
  --plan 'megatron(tp=2,pp=2,dp=2,zero=1,micro_batches=4)' --plan 'zero(stage=3,dp=8)' -o "$folder/report.html"
"$node" "$here/check_page.mjs" "$folder/report.html" "$modules" "$chromium" "$folder"
# A recommender: the page says where its tables rest.
"$tessera" report dlrm:rows=4000-300-70-5000,width=16,bottom=32-16,top=32-1 --cluster dgx-a100 --batch 64 \
  --plan 'tables(4)' --plan 'tables(4,row)' --optimizer rowwise_adagrad -o "$folder/tables.html"
"$node" "$here/check_page.mjs" "$folder/tables.html" "$modules" "$chromium"
# Many ranks and layers, pipelined, and a plan that does not fit.
"$tessera" report llama:layers=80,hidden=8192,heads=64,kv_heads=8,seq=8192,vocab=128256,ffn=28672 --cluster dgx-h100:8 --batch 256 \
  --precision bfloat16 --plan 'megatron(tp=8,pp=4,dp=2,micro_batches=64,zero=1)' --plan 'fsdp(dp=64)' -o "$folder/llama.html"
"$node" "$here/check_page.mjs" "$folder/llama.html" "$modules" "$chromium"
# A run that was started three times.
mkdir -p "$folder/run"
awk 'BEGIN {
  for (step = 1; step <= 900; ++step) {
    if (step % 300 == 1)
      printf "{\"start\": {\"time\": %d, \"model\": \"gpt:layers=2\", \"plan\": \"fsdp(dp=%d)\", \"ranks\": 4, \"parameters\": 124439808}}\n", 1700000000 + step, step
    printf "{\"step\": %d, \"loss\": %.4f, \"tokens_per_s\": %d, \"step_time_s\": 0.5, \"memory_bytes\": 3000000000, \"resident_bytes\": 4000000000%s}\n",
      step, 2 + 8 / step + (step % 7) / 50, 9000 + step % 13, step % 100 == 0 ? sprintf(", \"eval_loss\": %.4f", 2.1 + 8 / step) : ""
  }
}' > "$folder/run/metrics.jsonl"
"$tessera" report "$folder/run" -o "$folder/run.html"
"$node" "$here/check_page.mjs" "$folder/run.html" "$modules" "$chromium"
