#!/usr/bin/env bash
# Makes a report of two plans and of a search, and one of the search alone, with the program, and opens them in a headless browser (check_page.mjs).
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
