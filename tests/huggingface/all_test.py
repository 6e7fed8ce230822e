"""The tests of this folder in one process: torch and transformers take some seconds to load.

Usage: all_test.py TESSERA STEP [unittest options]. The slow tests set TESSERA_ALL_CASES, and run what the quick ones leave out.
"""
import os
import sys
import unittest

import huggingface_test
import optimizers_test
import variants_test

MODULES = (huggingface_test, optimizers_test, variants_test)


def load_tests(loader, _, __):
    return unittest.TestSuite(loader.loadTestsFromModule(module) for module in MODULES)


if __name__ == "__main__":
    program, step = (os.path.abspath(sys.argv.pop(1)) for _ in range(2))
    for one in MODULES:
        one.TESSERA, one.STEP = program, step
    unittest.main()
