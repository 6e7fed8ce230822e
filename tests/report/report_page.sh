#!/usr/bin/env bash
# Makes a report of two plans with the program and opens it in a headless browser (check_page.mjs).
# Exit code 77: skipped, the reason is printed.
set -euo pipefail
tessera="$1" node="$2" chromium="$3" modules="$4" folder="$5"
here="$(dirname "${BASH_SOURCE[0]}")"

skip() { echo "report_page: skipped: $1" >&2; exit 77; }
[[ -x "$node" ]] || skip "node was not found when the build was configured"
[[ -x "$chromium" ]] || skip "chromium was not found when the build was configured"
[[ -d "$modules/puppeteer-core" ]] || skip "npm was not found when the build was configured"

"$tessera" report gpt:layers=4,hidden=512,heads=8,seq=256,vocab=1024 --cluster dgx-a100 --batch 16 \
  --plan 'megatron(tp=2,pp=2,dp=2,zero=1,micro_batches=4)' --plan 'zero(stage=3,dp=8)' -o "$folder/report.html"
"$node" "$here/check_page.mjs" "$folder/report.html" "$modules" "$chromium" "$folder"
