#!/usr/bin/env python3
"""Writes a model of unequal blocks as a graph file: a GPT in which the MLP of each block has another number of hidden
units, so that no two blocks are equal (docs/theory/search.md section 12).

The sizes run from 1,024 in steps of 8, in an order that does not grow along the model.

Usage: unequal_blocks.py PROGRAM FILE.graph [--blocks N] [--batch B]
Example: benchmarks/unequal_blocks.py build/tessera /tmp/unequal.graph --blocks 512 --batch 256
         build/tessera plan /tmp/unequal.graph --cluster dgx-a100:8 --precision bfloat16
"""
import argparse
import re
import subprocess

MODEL = "gpt:layers={},hidden=1024,heads=16,seq=1024,vocab=32000,ffn=4096"
BLOCK = re.compile(r"blocks\.(\d+)\.")


def hidden_units(block, blocks):
    return 1024 + 8 * (37 * block % blocks)  # 37 divides no usual number of blocks, so all are unequal


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("program")
    parser.add_argument("file")
    parser.add_argument("--blocks", type=int, default=512)
    parser.add_argument("--batch", type=int, default=256)
    options = parser.parse_args()
    command = [options.program, "inspect", MODEL.format(options.blocks), "--batch", str(options.batch), "--text"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    with open(options.file, "w", encoding="utf-8") as out:
        for line in text.splitlines():
            block = BLOCK.search(line)
            if block:
                line = line.replace("ffn=4096", f"ffn={hidden_units(int(block[1]), options.blocks)}")
            out.write(line + "\n")


if __name__ == "__main__":
    main()
