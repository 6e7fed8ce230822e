"""The tests of this folder in one process: torch and transformers take some seconds to load.

Usage: all_test.py PROGRAM STEPS [unittest options]. The slow tests set TESSERA_ALL_CASES, and run what the quick ones leave out.
"""
import unittest

import pt2_case
import pt2_refusals_test
import pt2_test
import survey_test


def load_tests(loader, _, __):
    return unittest.TestSuite(loader.loadTestsFromModule(module) for module in (pt2_test, pt2_refusals_test, survey_test))


if __name__ == "__main__":
    pt2_case.main()
